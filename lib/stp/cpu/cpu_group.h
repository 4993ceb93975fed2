// Groups of ranks. Streams of this process's ranks use shared memory, and exchange tensors with the processes
// that drive other ranks.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "stp/device/group.h"
#include "stp/processes/processes.h"

namespace stp::cpu {

/// Of world ranks that the processes drive (process_of_rank()). Sums are computed in the members' order, so
/// all members get the same bits for any number of threads and processes.
std::unique_ptr<Group> make_group(std::string name, std::vector<int> members, int world_size,
                                  Processes& processes);

}  // namespace stp::cpu
