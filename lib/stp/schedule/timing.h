// When each block of a schedule runs.
#pragma once

#include <vector>

#include "stp/schedule/schedule.h"

namespace stp {

/// The hop that an action of `rank` is, which must not be W.
int hop_of(const Placement& placement, int rank, const Action& action);

/// In the unit of the costs.
struct BlockTime {
  double start = 0, end = 0;
};

/// By rank, the times of its blocks, in their order. Shorter than the rank's list where the block behind the
/// last one is never reached: it waits for a block that is never reached either, or for itself.
using Timing = std::vector<std::vector<BlockTime>>;

/// Runs every block as early as it can: once the block before it on its rank has ended and the inputs of all
/// its actions are there. A block is atomic: it takes the sum of its actions' costs (B: I and W), and hands
/// on its outputs at its end, to another rank p2p later. There must be a list per rank, and the chunks and
/// microbatches of all actions must exist. Time and memory grow as the number of actions.
Timing time_blocks(const Schedule& schedule, const PassCosts& costs = {});

}  // namespace stp
