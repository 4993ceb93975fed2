// A kernel that only takes time.
#pragma once

#include "stp/cuda/cuda_device.h"
#include "stp/device/stream.h"

namespace stp::cuda {

/// Delays `stream`: later work starts at least `nanoseconds` after earlier work has ended. One warp waits, by
/// the device's clock.
void pause(Stream& stream, uint64_t nanoseconds);

/// The longest of some steps in which the device's clock moves, in nanoseconds. Waits for the GPU.
double measured_clock_step_ns(CudaDevice& device);

}  // namespace stp::cuda
