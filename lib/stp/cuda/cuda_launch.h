// How kernels are launched by CUDA's runtime, and how much shared memory their blocks can have.
#pragma once

#include <cuda_runtime.h>

#include <map>
#include <mutex>
#include <tuple>

#include "stp/cuda/cuda_check.h"
#include "stp/cuda/shared_memory.h"

namespace stp::cuda {

struct LaunchShape {
  dim3 blocks, threads;
  size_t shared = 0;  // bytes of dynamic_shared()
};

/// See SharedMemory.
struct CudaSharedMemory {
  static int device() {
    int device = 0;
    STP_CUDA(cudaGetDevice(&device));
    return device;
  }
  static size_t most_shared() {
    int bytes = 0;
    STP_CUDA(cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device()));
    return static_cast<size_t>(bytes);
  }
  static size_t declared_shared(const void* kernel) {
    cudaFuncAttributes attributes{};
    STP_CUDA(cudaFuncGetAttributes(&attributes, kernel));
    return attributes.sharedSizeBytes;
  }
  static void raise_shared(const void* kernel, size_t bytes) {
    STP_CUDA(
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)));
  }
};

inline SharedMemory<CudaSharedMemory>& shared_memory() {
  static SharedMemory<CudaSharedMemory> memory;
  return memory;
}

template <typename... Parameters>
void allow_shared(void (*kernel)(Parameters...), size_t bytes) {
  shared_memory().allow(reinterpret_cast<const void*>(kernel), bytes);
}

/// The most dynamic shared memory that a block of the kernel can ask for.
template <typename... Parameters>
size_t shared_limit(void (*kernel)(Parameters...)) {
  return shared_memory().limit(reinterpret_cast<const void*>(kernel));
}

template <typename... Parameters, typename... Arguments>
void start(void (*kernel)(Parameters...), const LaunchShape& shape, cudaStream_t stream,
           Arguments... arguments) {
  allow_shared(kernel, shape.shared);
  cudaLaunchConfig_t config{};
  config.gridDim = shape.blocks;
  config.blockDim = shape.threads;
  config.dynamicSmemBytes = shape.shared;
  config.stream = stream;
  STP_CUDA(cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...));
}

/// How many blocks of a kernel the current device runs at once.
template <typename... Parameters>
int resident_blocks(void (*kernel)(Parameters...), int threads, size_t shared = 0) {
  static std::mutex mutex;
  static std::map<std::tuple<int, void (*)(Parameters...), int, size_t>, int> known;
  int device = 0;
  STP_CUDA(cudaGetDevice(&device));
  const std::lock_guard lock(mutex);
  int& blocks = known[{device, kernel, threads, shared}];
  if (blocks == 0) {
    int multiprocessors = 0, each = 0;
    allow_shared(kernel, shared);
    STP_CUDA(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device));
    STP_CUDA(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, kernel, threads, shared));
    blocks = multiprocessors * (each > 0 ? each : 1);
  }
  return blocks;
}

}  // namespace stp::cuda
