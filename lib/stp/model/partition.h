// How a model's layers are divided over the virtual stages.
#pragma once

#include <vector>

namespace stp {

/// The paper's rule (section 5.1): all chunks alike, the last with two layers fewer, since it bears the head.
/// InputError if (layers + 2) is not a multiple of the number of stages, or a stage would have fewer than no
/// layers.
std::vector<int> paper_partition(int layers, int stages);

}  // namespace stp
