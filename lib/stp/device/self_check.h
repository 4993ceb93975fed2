// Small kernels with known results, before a run trusts a device.
#pragma once

#include <vector>

#include "stp/device/attention_shape.h"
#include "stp/device/backend.h"
#include "stp/device/finding.h"
#include "stp/device/kernels.h"

namespace stp {

/// The output and the gradient of attention of small integers, by these kernels of rank 0's device.
std::vector<double> attention_and_gradient(Backend& backend, Kernels& kernels, DType type,
                                           const AttentionShape& shape);

/// Runs on rank 0's device, in `type`: GEMMs of small integers, whose results are exact, and attention of
/// heads of 64 elements, the first of whose tokens attends to itself alone; each twice, for the same bits.
std::vector<Finding> self_check(Backend& backend, DType type);

}  // namespace stp
