// What calls among ranks take on a machine that a hardware profile describes: the pace of replays.
#pragma once

#include "stp/backend/pacing.h"
#include "stp/cluster/profile.h"

namespace stp {

/// Times of calls as the simulator has them (lib/cluster): world ranks fill one node after the other.
/// Collectives over several nodes, which a profile does not describe, are rings over the links between nodes.
CallTimes call_times(const HardwareProfile& profile);

}  // namespace stp
