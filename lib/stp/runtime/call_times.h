// Times of calls among ranks on a machine described by a hardware profile.
#pragma once

#include "stp/cluster/profile.h"
#include "stp/emulation/link_emulation.h"

namespace stp {

/// The same times as in the simulator (lib/stp/cluster). World ranks fill one node after the other.
/// Collectives over several nodes, which profiles do not describe, are rings over the links between nodes.
CallTimes call_times(const HardwareProfile& profile);

}  // namespace stp
