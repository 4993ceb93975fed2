// Groups with one existing member (lib/stp/emulation/emulated_group.h), over links emulated by CPU threads.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "stp/emulation/emulated_group.h"

namespace stp::cpu {

std::unique_ptr<Group> make_emulated_group(std::string name, const Replay& replay,
                                           const std::vector<int>& members);

}  // namespace stp::cpu
