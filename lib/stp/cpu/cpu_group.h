// Groups of ranks: the streams of those that this process drives meet in shared memory, and exchange their
// tensors with the processes that drive the others.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "stp/device/group.h"
#include "stp/processes/processes.h"

namespace stp::cpu {

/// `driven_by`: by member, its process. Sums are made in the members' order, so that all get the same bits,
/// whichever thread adds them up and however many processes there are.
std::unique_ptr<Group> make_group(std::string name, std::vector<int> members, std::vector<int> driven_by,
                                  Processes& processes);

}  // namespace stp::cpu
