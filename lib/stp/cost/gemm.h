// Seconds of a GEMM by its shape.
#pragma once

#include "stp/cluster/profile.h"
#include "stp/model/work.h"

namespace stp {

/// Seconds of a GEMM. If the profile has measured GEMMs, its rate is the mean of their rates, weighted by the
/// similarity of shapes (ratios of m, n and k). Otherwise a model of the chip divides it into output tiles,
/// one per SM at a time: the last wave may leave SMs idle, edge tiles compute beyond the edge, and every tile
/// has a prologue and epilogue worth `gemm_overhead_k` steps of k. The best usual tile size counts. Large
/// GEMMs approach peak · gemm_efficiency · gemm_sustained. `sms_aside` SMs are left to communication, if the
/// device has more.
double gemm_seconds(const HardwareProfile& profile, const Gemm& gemm, int sms_aside = 0);

/// Seconds of a GEMM fused, tile by tile, with the all-gather of its input or the reduce-scatter of its
/// output, which takes `collective` seconds alone (Flux, arXiv 2406.06858). Both run at full rate, because
/// copy engines and the epilogue move the data. Only during one wave of tiles of 128 × 256 the shorter of the
/// two does not overlap: it has not begun, or the longer has ended.
double fused_seconds(const HardwareProfile& profile, const Gemm& gemm, double collective);

}  // namespace stp
