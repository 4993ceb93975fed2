// Replays: one rank of a run, with its real kernels, among peers at the pace of a hardware profile.
#pragma once

#include "scenario.h"
#include "stp/cluster/profile.h"

namespace stp {

/// A rank of the world, and the links to its peers.
struct ReplayChoice {
  int rank;
  HardwareProfile profile;
};

/// Throws InputError if some experiment of the scenario does not have the rank, or asks for what one rank
/// alone cannot show.
void check_replay(const Scenario& scenario, int rank);

}  // namespace stp
