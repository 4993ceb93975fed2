#include "stp/cuda/kernels/launch.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <tuple>
#include <utility>

namespace stp::cuda {
namespace {

constexpr size_t kUnasked = size_t{48} << 10;

int current_device() {
  int device = 0;
  STP_CUDA(cudaGetDevice(&device));
  return device;
}

// Shared memory of one kernel on one device, in bytes.
struct SharedUse {
  size_t declared, most;  // by the kernel itself; by a block in all
  size_t allowed;         // for a launch, besides `declared`
};

std::mutex mutex;

// The caller holds the mutex.
SharedUse& shared_use(const void* kernel) {
  static std::map<std::pair<int, const void*>, SharedUse> uses;
  const int device = current_device();
  if (const auto known = uses.find({device, kernel}); known != uses.end()) return known->second;
  cudaFuncAttributes attributes{};
  STP_CUDA(cudaFuncGetAttributes(&attributes, kernel));
  int most = 0;
  STP_CUDA(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
  const size_t declared = attributes.sharedSizeBytes;
  return uses[{device, kernel}] = {declared, static_cast<size_t>(most),
                                   kUnasked - std::min(declared, kUnasked)};
}

}  // namespace

void allow_shared(const void* kernel, size_t bytes) {
  if (bytes == 0) return;
  const std::lock_guard lock(mutex);
  SharedUse& use = shared_use(kernel);
  if (bytes <= use.allowed) return;
  STP_CUDA(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)));
  use.allowed = bytes;
}

size_t shared_limit(const void* kernel) {
  const std::lock_guard lock(mutex);
  const SharedUse& use = shared_use(kernel);
  return use.most - std::min(use.declared, use.most);
}

int resident_blocks(const void* kernel, int threads, size_t shared) {
  allow_shared(kernel, shared);
  static std::map<std::tuple<int, const void*, int, size_t>, int> known;
  const int device = current_device();
  const std::lock_guard lock(mutex);
  int& blocks = known[{device, kernel, threads, shared}];
  if (blocks == 0) {
    int multiprocessors = 0, each = 0;
    STP_CUDA(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device));
    STP_CUDA(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, kernel, threads, shared));
    blocks = multiprocessors * std::max(each, 1);
  }
  return blocks;
}

}  // namespace stp::cuda
