// What calls among ranks take on a machine that a hardware profile describes.
#pragma once

#include "stp/cluster/profile.h"
#include "stp/emulation/link_emulation.h"

namespace stp {

/// Times of calls as the simulator has them (lib/stp/cluster): world ranks fill one node after the other.
/// Collectives over several nodes, which a profile does not describe, are rings over the links between nodes.
CallTimes call_times(const HardwareProfile& profile);

}  // namespace stp
