// Call times among ranks on a machine that a hardware profile describes.
#pragma once

#include "stp/cluster/profile.h"
#include "stp/emulation/link_emulation.h"

namespace stp {

/// Returns the simulator's times (lib/stp/cluster), for a group that has the adapters to itself. World ranks
/// fill one node after the other.
CallTimes call_times(const HardwareProfile& profile);

}  // namespace stp
