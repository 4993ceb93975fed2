// Seconds of a GEMM by its shape.
#pragma once

#include "stp/cluster/profile.h"
#include "stp/model/work.h"

namespace stp {

/// If the profile has measured GEMMs: at the mean of their rates, weighted by how near their shapes are (by
/// the ratios of m, n and k). Else by a model of the chip: the GEMM is divided into output tiles, one per SM
/// at a time. The last wave may leave SMs idle, edge tiles compute beyond the edge, and every tile has a
/// prologue and epilogue worth `gemm_overhead_k` steps of k. The best of the usual tile sizes counts.
/// Approaches peak · gemm_efficiency for large GEMMs.
/// `sms_aside` SMs are left to communication, if the device has more.
double gemm_seconds(const HardwareProfile& profile, const Gemm& gemm, int sms_aside = 0);

}  // namespace stp
