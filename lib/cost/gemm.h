// Seconds of a matrix product by its shape.
#pragma once

#include "stp/cluster/profile.h"
#include "stp/model/work.h"

namespace stp {

/// The product is cut into output tiles, one per SM at a time: the last wave may leave SMs idle, edge tiles
/// waste what hangs over, and every tile pays a prologue and epilogue worth `gemm_overhead_k` steps of k. The
/// best of the usual tile sizes counts. Approaches peak · gemm_efficiency for large products.
double gemm_seconds(const HardwareProfile& profile, const Gemm& gemm);

}  // namespace stp
