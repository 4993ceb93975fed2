#include "stp/cuda/kernels/clock_step.h"

#include <span>

#include "stp/cuda/kernels/device.cuh"
#include "stp/cuda/kernels/device_clock.cuh"

namespace stp::cuda {
namespace {

// The first change is of a step that had begun before.
__global__ void clock_step_kernel(float* longest) {
  if (threadIdx.x != 0) return;
  uint64_t last = nanoseconds();
  *longest = 0;
  for (int changes = 0; changes < 9;) {
    const uint64_t now = nanoseconds();
    if (now == last) continue;
    if (changes++ > 0) *longest = fmaxf(*longest, static_cast<float>(now - last));
    last = now;
  }
}

}  // namespace

double measured_clock_step_ns(CudaDevice& device) {
  const auto stream = device.make_stream("clock", StreamPriority::compute);
  Tensor step = device.allocate(*stream, MemoryKind::working, DType::f32, 1, 1);
  start(*stream, clock_step_kernel, {1, kWarp}, reinterpret_cast<float*>(address(step)));
  float found = 0;
  device.download(*stream, step, std::as_writable_bytes(std::span(&found, 1)));
  device.release(*stream, step);
  return found;
}

}  // namespace stp::cuda
