// Keeps released blocks of device memory for reuse. After the host's call that releases a block, a stream may
// reuse it if the stream's next work comes after the release anyway: no stream waits for memory. The program
// alone therefore decides how much memory is held, however far the host is ahead of the device, and every
// step gets the same addresses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <vector>

#include "stp/device/stream.h"

namespace stp {

/// For one rank, and for the thread that issues its work.
class CachingAllocator {
 public:
  /// `fresh` allocates at least the given number of bytes, aligned to 64; `free` frees them when the device
  /// has finished all work.
  CachingAllocator(std::function<std::byte*(size_t)> fresh, std::function<void(std::byte*)> free)
      : fresh_(std::move(fresh)), free_(std::move(free)) {}
  CachingAllocator(const CachingAllocator&) = delete;
  CachingAllocator& operator=(const CachingAllocator&) = delete;

  /// Returns a block for work given to `stream` from now on: the latest of that size whose release comes
  /// before that work (Stream::is_behind()), or a fresh block.
  std::byte* allocate(Stream& stream, size_t bytes);
  /// Releases a block that no later work of `stream` uses.
  void release(Stream& stream, std::byte* block, size_t bytes);
  /// Call when the device has finished all work: frees blocks not used since the last call but one.
  void trim();
  /// Frees all blocks, also those in use. The device must have finished with them. It is the last call.
  void clear();

 private:
  struct FreeBlock {
    std::byte* at;
    EventRef released;  // null: the device has finished with it
    uint64_t period;
  };

  const std::function<std::byte*(size_t)> fresh_;
  const std::function<void(std::byte*)> free_;
  std::map<size_t, std::vector<FreeBlock>> released_;  // by bytes, the oldest release first
  std::set<std::byte*> all_;
  uint64_t period_ = 0;
};

}  // namespace stp
