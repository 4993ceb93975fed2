// How a model's layers are divided over the virtual stages.
#pragma once

#include <vector>

namespace stp {

/// The paper's rule (section 5.1): all chunks have as many layers, but the last, which also has the head, has
/// two fewer. InputError if (layers + 2) is not a multiple of the number of stages, or a stage would have a
/// negative number of layers.
std::vector<int> paper_partition(int layers, int stages);

/// As even as possible: the first stages have one layer more than the others. InputError if a stage would
/// have none.
std::vector<int> even_partition(int layers, int stages);

}  // namespace stp
