// Communication with ranks that do not exist (lib/backend/paced_communicator.h), by a CPU's threads.
#pragma once

#include <memory>
#include <vector>

#include "stp/backend/communicator.h"
#include "stp/backend/pacing.h"

namespace stp {

std::unique_ptr<Communicator> make_paced_cpu_communicator(const Replay& replay,
                                                          const std::vector<int>& members, int index);

}  // namespace stp
