#include "stp/device/caching_allocator.h"

#include <algorithm>

namespace stp {

void CachingAllocator::clear() {
  for (std::byte* block : all_) free_(block);
  all_.clear();
  released_.clear();
}

std::byte* CachingAllocator::allocate(Stream& stream, size_t bytes) {
  std::deque<FreeBlock>& blocks = released_[bytes];
  auto found = std::find_if(blocks.begin(), blocks.end(), [&](const FreeBlock& block) {
    return block.released_on == &stream || !block.released;
  });
  if (found == blocks.end()) found = blocks.begin();
  if (found == blocks.end()) return *all_.insert(fresh_(bytes)).first;
  if (found->released && found->released_on != &stream) stream.wait(found->released);
  std::byte* const at = found->at;
  blocks.erase(found);
  return at;
}

void CachingAllocator::release(Stream& stream, std::byte* block, size_t bytes) {
  released_[bytes].push_back({block, &stream, stream.fence(), period_});
}

void CachingAllocator::trim() {
  for (auto& [bytes, blocks] : released_) {
    std::erase_if(blocks, [&](const FreeBlock& block) {
      if (block.period + 1 >= period_) return false;
      free_(block.at);
      all_.erase(block.at);
      return true;
    });
    for (FreeBlock& block : blocks) block.released = nullptr;
  }
  ++period_;
}

}  // namespace stp
