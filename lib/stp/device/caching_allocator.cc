#include "stp/device/caching_allocator.h"

#include <algorithm>
#include <iterator>

namespace stp {

void CachingAllocator::clear() {
  for (std::byte* block : all_) free_(block);
  all_.clear();
  released_.clear();
}

std::byte* CachingAllocator::allocate(Stream& stream, size_t bytes) {
  // Older blocks stay for streams that are not behind the newer releases.
  std::vector<FreeBlock>& blocks = released_[bytes];
  const auto found = std::find_if(blocks.rbegin(), blocks.rend(), [&](const FreeBlock& block) {
    return !block.released || stream.is_behind(*block.released);
  });
  if (found == blocks.rend()) return *all_.insert(fresh_(bytes)).first;
  std::byte* const at = found->at;
  blocks.erase(std::next(found).base());
  return at;
}

void CachingAllocator::release(Stream& stream, std::byte* block, size_t bytes) {
  released_[bytes].push_back({block, stream.fence(), period_});
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
