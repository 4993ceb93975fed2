// The memory of an experiment's ranks on its hardware.
#pragma once

#include <vector>

#include "scenario.h"
#include "stp/cost/balance.h"
#include "stp/program/program.h"
#include "stp/report/record.h"

namespace stp {

/// The memory of each rank of `program`. Without offload its schedule, layers and strategy are enough, with
/// `rank_begin` of zeros.
std::vector<RankResult::Memory> memory_by_rank(const Experiment& experiment, const Program& program);
/// The GPU's memory less that of the fullest rank.
double margin_gb(const Experiment& experiment, const Program& program);
/// The same if parameters and their state were spread evenly over ranks, and there were no activations.
double even_margin_gb(const Experiment& experiment);
/// `peak_error`: the share of the peak that the margin must have, too, to be sure.
Fit fit_of(const HardwareProfile& profile, double margin_gb, double peak_error = 0);

/// Whether a rank of a schedule has memory for its chunks. `placement` and `order` must outlive it.
Fits fits_into_memory(const Experiment& experiment, const Placement& placement, const Program& order);

/// The largest peak of activations of a rank, bytes; 0 with unit costs.
double peak_bytes(const Program& program, const Experiment& experiment);

/// The largest peak of activations of a rank, GB, if nothing of `program` were recomputed.
double peak_gb_without_recompute(const Program& program, const Experiment& experiment);

}  // namespace stp
