// Groups of ranks that share one GPU, where all buffers are in reach: one kernel, or copies, do a call's
// whole work, on the stream of the first part, which waits for the other parts' streams, as they do for it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "stp/device/group.h"

namespace stp::cuda {

/// Sums are made in the members' order, and rounded once. Throws std::logic_error for more members than a
/// call can have.
std::unique_ptr<Group> make_local_group(std::string name, const std::vector<int>& members);

}  // namespace stp::cuda
