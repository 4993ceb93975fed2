// How kernels are launched, and how much shared memory their blocks can have.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>

#include "stp/cuda/cuda_check.h"
#include "stp/device/stream.h"

namespace stp::cuda {

struct LaunchShape {
  dim3 blocks, threads;
  size_t shared = 0;  // bytes of dynamic_shared()
};

// Of the current device, each asked once. Threads may call them at once.

/// Sees to it that launches of the kernel can add `bytes` of shared memory to what it declares itself. CUDA
/// gives 48 KiB in all without being asked.
void allow_shared(const void* kernel, size_t bytes);
/// The most bytes that a launch of the kernel can add.
size_t shared_limit(const void* kernel);
/// How many blocks of the kernel the device runs at once.
int resident_blocks(const void* kernel, int threads, size_t shared = 0);

/// Of the backend's stream: CudaStream::launch().
void launch_on(Stream& stream, const void* kernel, std::function<void(cudaStream_t)> launch);

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
  launch_on(stream, address_of(kernel), [=](cudaStream_t on) {
    cudaLaunchConfig_t config{};
    config.gridDim = shape.blocks;
    config.blockDim = shape.threads;
    config.dynamicSmemBytes = shape.shared;
    config.stream = on;
    STP_CUDA(launch_kernel(config, kernel, static_cast<Parameters>(arguments)...));
  });
}

}  // namespace stp::cuda
