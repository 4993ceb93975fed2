// How finely the device's clock measures time.
#pragma once

#include "stp/cuda/cuda_device.h"

namespace stp::cuda {

/// The longest of some steps in which the device's clock moves, in nanoseconds. Waits for the GPU.
double measured_clock_step_ns(CudaDevice& device);

}  // namespace stp::cuda
