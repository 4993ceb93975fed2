// Replays: one rank of a run, with its real kernels, over emulated links of a hardware profile.
#pragma once

#include "scenario.h"
#include "stp/cluster/profile.h"

namespace stp {

/// A rank of the world, and the links to its peers.
struct ReplayChoice {
  int rank;
  HardwareProfile profile;
  double late_s = 0;  // as Replay
};

/// Throws InputError if an experiment of the scenario does not have the rank, or needs more than one rank
/// (parity).
void check_replay(const Scenario& scenario, int rank);

}  // namespace stp
