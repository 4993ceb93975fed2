// What a machine does with the pieces that schedules are made of: GEMMs, and all-reduces beside compute.
#pragma once

#include <vector>

#include "stp/cluster/profile.h"
#include "stp/cost/cost_table.h"
#include "stp/model/work.h"
#include "stp/simulate/simulate.h"

namespace stp {

/// A GEMM of a layer and its time.
struct GemmFigure {
  Unit unit;
  UnitPass pass;
  Gemm gemm;
  double seconds;
};
/// Every GEMM of one layer, forward and backward, on one tensor-parallel rank.
std::vector<GemmFigure> gemm_figures(const HardwareProfile& profile, const ModelConfig& model,
                                     const Shape& shape, Implementation implementation);

/// What of an all-reduce stays exposed behind compute that starts with it: how much longer both take than the
/// compute alone, what contention costs included, over the all-reduce alone.
double exposed_share(double compute_s, double all_reduce_s, const Contention& contention);

}  // namespace stp
