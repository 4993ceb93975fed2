// Seconds of a matrix product by its shape.
#pragma once

#include "stp/cluster/profile.h"
#include "stp/model/work.h"

namespace stp {

/// Where the profile has measured products: at the rate of those of that shape, or of the nearest (the ratios
/// of m, n and k say how near), nearer ones counting for more. Else by a model of the chip: the product is
/// cut into output tiles, one per SM at a time: the last wave may leave SMs idle, edge tiles waste what hangs
/// over, and every tile pays a prologue and epilogue worth `gemm_overhead_k` steps of k. The best of the
/// usual tile sizes counts. Approaches peak · gemm_efficiency for large products.
double gemm_seconds(const HardwareProfile& profile, const Gemm& gemm);

}  // namespace stp
