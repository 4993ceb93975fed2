#include "stp/cuda/kernels/pause.h"

#include <span>

#include "stp/cuda/kernels/device.cuh"
#include "stp/cuda/kernels/device_clock.cuh"

namespace stp::cuda {
namespace {

__global__ void pause_kernel(uint64_t time) {
  if (threadIdx.x != 0) return;
  const uint64_t start = nanoseconds();
  while (nanoseconds() - start < time) continue;
}

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

void pause(Stream& stream, uint64_t nanoseconds) { start(stream, pause_kernel, {1, kWarp}, nanoseconds); }

}  // namespace stp::cuda
