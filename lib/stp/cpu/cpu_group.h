// Groups of ranks. Streams of this process's ranks use shared memory, and exchange tensors with the processes
// that drive other ranks.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "stp/device/group.h"
#include "stp/processes/processes.h"

namespace stp::cpu {

/// `driven_by`: the process of each member. Sums are computed in the members' order, so all members get the
/// same bits for any number of threads and processes.
std::unique_ptr<Group> make_group(std::string name, std::vector<int> members, std::vector<int> driven_by,
                                  Processes& processes);

}  // namespace stp::cpu
