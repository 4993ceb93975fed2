// Numbers in memory of the host that kernels write to, one for each call that is under way.
#pragma once

#include <cstddef>
#include <vector>

#include "stp/cuda/cuda_run.h"

namespace stp::cuda {

/// For work that is being issued, and what is called when the GPU has passed it: under the order's mutex.
template <typename T>
class HostNumbers {
 public:
  /// `run` outlives this. Throws CudaError.
  explicit HostNumbers(CudaRun& run) : run_(run) { add(); }

  /// It is 0.
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
    T* const block = static_cast<T*>(run_.pinned(kNumbers * sizeof(T)));
    for (size_t i = 0; i < kNumbers; ++i) free_.push_back(block + i);
  }

  CudaRun& run_;
  std::vector<T*> free_;
};

}  // namespace stp::cuda
