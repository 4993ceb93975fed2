// Communication with ranks that do not exist (lib/stp/emulation/paced_communicator.h), by a CPU's threads.
#pragma once

#include <memory>
#include <vector>

#include "stp/device/communicator.h"
#include "stp/emulation/pacing.h"

namespace stp::cpu {

std::unique_ptr<Communicator> make_paced_cpu_communicator(const Replay& replay,
                                                          const std::vector<int>& members, int index);

}  // namespace stp::cpu
