// A machine's figures for GEMMs, and for all-reduces that overlap compute.
#pragma once

#include <vector>

#include "stp/cluster/profile.h"
#include "stp/cost/overlap.h"
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

/// Simulates a rank's compute op and its all-reduce, both ready at the start, from their times alone.
OverlapFigures simulated_overlap(double compute_s, double all_reduce_s, const Contention& contention);

}  // namespace stp
