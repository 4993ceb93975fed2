// What the CUDA backend finds of driver, GPU and libraries, for `stp doctor`.
#pragma once

#include <vector>

#include "stp/device/finding.h"

namespace stp::cuda {

/// Needs no GPU, and throws nothing: what is missing is a finding.
std::vector<Finding> examine(int gpu = 0);

}  // namespace stp::cuda
