#include "stp/cuda/scratch_blocks.h"

#include <algorithm>
#include <bit>
#include <stdexcept>

#include "stp/cuda/cuda_check.h"
#include "stp/cuda/cuda_memory.h"

namespace stp::cuda {

// The smallest block that does; a new one is a power of two, so that those which became too small are never
// more than it together.
void* ScratchBlocks::take(cudaStream_t stream, size_t bytes) {
  std::vector<Block>& blocks = blocks_[stream];
  Block* best = nullptr;
  for (Block& block : blocks)
    if (!block.used && block.bytes >= bytes && (best == nullptr || block.bytes < best->bytes)) best = &block;
  if (best == nullptr) {
    const size_t size = std::bit_ceil(bytes);
    blocks.push_back({fresh_(stream, size), size, false});
    best = &blocks.back();
  }
  best->used = true;
  if (poison_) STP_CUDA(cudaMemsetAsync(best->at, kPoison, bytes, stream));
  return best->at;
}

void ScratchBlocks::give_back(cudaStream_t stream, void* at, size_t bytes) {
  std::vector<Block>& blocks = blocks_[stream];
  const auto block =
      std::find_if(blocks.begin(), blocks.end(), [&](const Block& each) { return each.at == at; });
  if (block == blocks.end() || !block->used) throw std::logic_error("scratch memory was not taken");
  if (poison_) STP_CUDA(cudaMemsetAsync(at, kPoison, bytes, stream));
  block->used = false;
}

ScratchMemory ScratchBlocks::memory() {
  return {[this](cudaStream_t stream, size_t bytes) { return take(stream, bytes); },
          [this](cudaStream_t stream, void* at, size_t bytes) { give_back(stream, at, bytes); }};
}

}  // namespace stp::cuda
