#include "stp/cuda/kernels/pause.h"

#include "stp/cuda/kernels/device.cuh"
#include "stp/cuda/kernels/device_clock.cuh"

namespace stp::cuda {
namespace {

__global__ void pause_kernel(uint64_t time) {
  if (threadIdx.x != 0) return;
  const uint64_t start = nanoseconds();
  while (nanoseconds() - start < time) continue;
}

}  // namespace

void pause(Stream& stream, uint64_t nanoseconds) { start(stream, pause_kernel, {1, kWarp}, nanoseconds); }

}  // namespace stp::cuda
