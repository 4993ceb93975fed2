// Keeps released blocks of device memory for reuse. A block is free for a stream from the call that releases
// it, in the order of the host's calls, which is the program's, if the stream's next work comes behind the
// release anyway: no stream waits for memory. So the program alone decides how much memory is held, however
// far the host is ahead of the device, and every step gets the same addresses.
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

  /// A block for work given to `stream` from now on: the latest of that size whose release comes before that
  /// work (Stream::is_behind()), else a fresh one.
  std::byte* allocate(Stream& stream, size_t bytes);
  /// No later work of `stream` uses the block.
  void release(Stream& stream, std::byte* block, size_t bytes);
  /// To be called when the device has finished all work: frees blocks not used since the last but one call.
  void trim();
  /// Frees all blocks, including held ones. The device must have finished with them; no other call may
  /// follow.
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
