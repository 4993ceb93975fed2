// Small kernels with known results, before a run trusts a device.
#pragma once

#include <vector>

#include "stp/device/backend.h"
#include "stp/device/finding.h"

namespace stp {

/// Runs on rank 0's device, in `type`: a GEMM of small integers, whose result is exact, and attention of
/// heads of 64 elements, the first of whose tokens attends to itself alone; each twice, for the same bits.
std::vector<Finding> self_check(Backend& backend, DType type);

}  // namespace stp
