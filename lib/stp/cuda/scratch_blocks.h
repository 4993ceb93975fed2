// Memory that kernels need while they run: blocks that belong to a stream and stay where they are, so that a
// graph which was captured with them can be replayed.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <functional>
#include <map>
#include <vector>

#include "stp/cuda/scratch_memory.h"

namespace stp::cuda {

/// Used where work is issued: one caller at a time.
class ScratchBlocks {
 public:
  /// `fresh` gets memory that stays until its owner ends; `poison`: what is taken and given back is filled
  /// with NaN.
  ScratchBlocks(std::function<void*(cudaStream_t, size_t)> fresh, bool poison)
      : fresh_(std::move(fresh)), poison_(poison) {}

  /// As ScratchMemory: used in the order of `stream` alone.
  void* take(cudaStream_t stream, size_t bytes);
  void give_back(cudaStream_t stream, void* at, size_t bytes);
  /// This for kernels, which it outlives.
  [[nodiscard]] ScratchMemory memory();

 private:
  struct Block {
    void* at;
    size_t bytes;
    bool used;
  };

  const std::function<void*(cudaStream_t, size_t)> fresh_;
  const bool poison_;
  std::map<cudaStream_t, std::vector<Block>> blocks_;
};

}  // namespace stp::cuda
