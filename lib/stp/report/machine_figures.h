// What a machine does with the pieces that schedules are made of: matrix products, all-reduces, and both at
// once.
#pragma once

#include <optional>
#include <vector>

#include "stp/cluster/profile.h"
#include "stp/cost/cost_table.h"
#include "stp/model/work.h"
#include "stp/simulate/simulate.h"

namespace stp {

/// A matrix product of a layer and its time.
struct GemmFigure {
  Unit unit;
  UnitPass pass;
  Gemm gemm;
  double seconds;
};
/// Every product of one layer, forward and backward, on one tensor-parallel rank.
std::vector<GemmFigure> gemm_figures(const HardwareProfile& profile, const ModelConfig& model,
                                     const Shape& shape, Implementation implementation);

/// FLOP/s over those of `figures` that are of `unit` and `pass`, or of any where none is given; none where
/// there are none.
std::optional<double> gemm_rate(const std::vector<GemmFigure>& figures, std::optional<Unit> unit = {},
                                std::optional<UnitPass> pass = {});

/// nccl-tests' bus bandwidth of an all-reduce, bytes/s: bytes · 2(n − 1)/n / seconds.
double all_reduce_bus_bandwidth(const HardwareProfile& profile, double bytes, int ranks);

/// What of an all-reduce stays exposed behind compute that starts with it: how much longer both take than the
/// compute alone, what contention costs included, over the all-reduce alone.
double exposed_share(double compute_s, double all_reduce_s, const Contention& contention);

}  // namespace stp
