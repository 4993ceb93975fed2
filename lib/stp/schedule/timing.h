// The times of a schedule's blocks.
#pragma once

#include <vector>

#include "stp/schedule/schedule.h"

namespace stp {

/// The hop of an F, I or B of `rank`.
int hop_of(const Placement& placement, int rank, const Action& action);

/// Times of one block, in the unit of the costs.
struct BlockTime {
  double start = 0, end = 0;
};

/// By rank, the times of its blocks, in order. The list ends early if the next block can never start: it
/// waits for itself, or for a block that never starts.
using Timing = std::vector<std::vector<BlockTime>>;

/// Runs every block as early as possible: after the block before it on its rank has ended and the inputs of
/// all its actions have arrived. A block is atomic and takes the sum of its actions' costs (B: I and W). Its
/// outputs leave at its end and arrive at another rank p2p later; the vocabulary's passes take no time, nor
/// do their results to reach all ranks. Needs a list per rank, and valid chunks and microbatches. Time and
/// memory grow linearly with the number of actions.
Timing time_blocks(const Schedule& schedule, const PassCosts& costs = {});

/// By rank, the number of its blocks that time_blocks() gives times.
std::vector<size_t> startable_blocks(const Schedule& schedule);

}  // namespace stp
