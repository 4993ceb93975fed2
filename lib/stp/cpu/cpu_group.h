// Groups of ranks: streams of ranks that this process drives use shared memory, and exchange tensors with the
// processes that drive the other ranks.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "stp/device/group.h"
#include "stp/processes/processes.h"

namespace stp::cpu {

/// `driven_by`: the process of each member. Sums are computed in the members' order, so that all members get
/// the same bits, for any threads and number of processes.
std::unique_ptr<Group> make_group(std::string name, std::vector<int> members, std::vector<int> driven_by,
                                  Processes& processes);

}  // namespace stp::cpu
