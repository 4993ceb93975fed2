// Groups of ranks that this process drives all of: their streams meet in shared memory.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "stp/device/group.h"

namespace stp::cpu {

/// Sums are made in the members' order, so that all get the same bits whichever thread adds them up.
std::unique_ptr<Group> make_group(std::string name, std::vector<int> members);

}  // namespace stp::cpu
