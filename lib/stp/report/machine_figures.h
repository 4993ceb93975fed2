// A machine's figures for all-reduces that overlap compute.
#pragma once

#include "stp/cost/overlap.h"
#include "stp/simulate/simulate.h"

namespace stp {

/// Simulates a rank's compute op and its all-reduce, both ready at the start, from their times alone.
OverlapFigures simulated_overlap(double compute_s, double all_reduce_s, const Contention& contention);

}  // namespace stp
