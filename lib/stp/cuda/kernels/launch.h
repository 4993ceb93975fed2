// The launch of kernels, and the limits of their blocks' shared memory.
#pragma once

#include <cuda_runtime_api.h>

#include "stp/cuda/cuda_check.h"
#include "stp/cuda/cuda_stream.h"
#include "stp/cuda/graphs.h"

namespace stp::cuda {

struct LaunchShape {
  dim3 blocks, threads;
  size_t shared = 0;  // bytes of dynamic_shared()
};

// Limits of the current device. The first call asks CUDA; later calls return the cached value. Thread-safe.

/// Allows launches of the kernel to add `bytes` of dynamic shared memory. Without this call, CUDA allows 48
/// KiB in total.
void allow_shared(const void* kernel, size_t bytes);
/// The largest number of bytes of dynamic shared memory in a launch of the kernel.
size_t shared_limit(const void* kernel);
/// The number of blocks of the kernel that the device runs at once.
int resident_blocks(const void* kernel, int threads, size_t shared = 0);

/// Whether these programs have machine code, or code to compile, for the current device (elementwise.cu).
bool has_code_for_device();

template <typename... Parameters>
const void* address_of(void (*kernel)(Parameters...)) {
  return reinterpret_cast<const void*>(kernel);
}

template <typename... Parameters>
cudaError_t launch_kernel(const cudaLaunchConfig_t& config, void (*kernel)(Parameters...),
                          Parameters... parameters);  // target.cuh

template <typename... Parameters, typename... Arguments>
void start(Stream& stream, void (*kernel)(Parameters...), const LaunchShape& shape, Arguments... arguments) {
  allow_shared(address_of(kernel), shape.shared);
  cuda_stream(stream).launch(
      address_of(kernel), [&] { return bytes_of_values(shape, arguments...); },
      [=](cudaStream_t on) {
        cudaLaunchConfig_t config{};
        config.gridDim = shape.blocks;
        config.blockDim = shape.threads;
        config.dynamicSmemBytes = shape.shared;
        config.stream = on;
        STP_CUDA(launch_kernel(config, kernel, static_cast<Parameters>(arguments)...));
      });
}

}  // namespace stp::cuda
