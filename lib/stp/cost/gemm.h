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

/// Seconds of a GEMM fused at the level of its output tiles with the all-gather of its input or the
/// reduce-scatter of its output, of `collective` seconds alone (Flux, arXiv 2406.06858): both run at full
/// rate, since copy engines and the epilogue move the data, but for one wave of tiles of 128 × 256, in which
/// the shorter one has not begun or the longer one has ended.
double fused_seconds(const HardwareProfile& profile, const Gemm& gemm, double collective);

}  // namespace stp
