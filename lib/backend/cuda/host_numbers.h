// Numbers in memory of the host that kernels write to, one for each call that is under way.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <vector>

#include "stp/cuda/cuda_check.h"

namespace stp {

/// For work that is being issued, and what is called when the GPU has passed it: under the order's mutex.
template <typename T>
class HostNumbers {
 public:
  HostNumbers() { add(); }
  HostNumbers(const HostNumbers&) = delete;
  HostNumbers& operator=(const HostNumbers&) = delete;
  ~HostNumbers() {
    for (T* block : blocks_) cudaFreeHost(block);
  }

  /// It is 0, and for the GPU at the same address.
  T* take() {
    if (free_.empty()) add();
    T* const number = free_.back();
    free_.pop_back();
    *number = 0;
    return number;
  }
  /// Returns what the kernel wrote.
  T give_back(T* number) {
    free_.push_back(number);
    return *static_cast<const volatile T*>(number);
  }

 private:
  void add() {
    constexpr size_t kNumbers = 512;  // more than a stream is ahead of the GPU
    void* block = nullptr;
    STP_CUDA(cudaHostAlloc(&block, kNumbers * sizeof(T), cudaHostAllocMapped | cudaHostAllocPortable));
    blocks_.push_back(static_cast<T*>(block));
    for (size_t i = 0; i < kNumbers; ++i) free_.push_back(blocks_.back() + i);
  }

  std::vector<T*> blocks_, free_;
};

}  // namespace stp
