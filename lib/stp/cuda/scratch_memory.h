// Memory that kernels need while they run, from whoever has it.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <functional>

namespace stp::cuda {

/// Both are called for work that is being issued. What was taken is used in the order of its stream alone,
/// and given back in that order, with the bytes that were taken.
struct ScratchMemory {
  std::function<void*(cudaStream_t stream, size_t bytes)> take;
  std::function<void(cudaStream_t stream, void* at, size_t bytes)> give_back;

  /// Calls work(at), and gives back what is at `at`; null for no bytes.
  template <typename Work>
  void with(cudaStream_t stream, size_t bytes, Work work) const {
    if (bytes == 0) return work(static_cast<void*>(nullptr));
    void* const at = take(stream, bytes);
    work(at);  // if it throws, the run has failed, and its owner frees the memory in the end
    give_back(stream, at, bytes);
  }
};

}  // namespace stp::cuda
