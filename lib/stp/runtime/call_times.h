// Times of calls among ranks on a machine described by a hardware profile.
#pragma once

#include "stp/cluster/profile.h"
#include "stp/emulation/link_emulation.h"

namespace stp {

/// The same times as in the simulator (lib/stp/cluster), with no other group on the adapters. World ranks
/// fill one node after the other.
CallTimes call_times(const HardwareProfile& profile);

}  // namespace stp
