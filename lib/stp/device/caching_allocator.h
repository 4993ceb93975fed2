// Blocks of device memory that are kept for further use. A block is free from the call that releases it on,
// in the order of the host's calls, which is that of the program: so never more memory is held than the
// program holds at once, however far the host is ahead of the device, and every step gets the addresses that
// the step before it had.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <set>

#include "stp/device/stream.h"

namespace stp {

/// Of one rank; for the thread that issues its work.
class CachingAllocator {
 public:
  /// `fresh` gives memory of at least so many bytes, aligned to 64, and `free` takes it back when the device
  /// is done with everything.
  CachingAllocator(std::function<std::byte*(size_t)> fresh, std::function<void(std::byte*)> free)
      : fresh_(std::move(fresh)), free_(std::move(free)) {}
  CachingAllocator(const CachingAllocator&) = delete;
  CachingAllocator& operator=(const CachingAllocator&) = delete;

  /// A block for work that `stream` is given from now on: the oldest of that size that was released on the
  /// same stream, else the oldest released on another, which `stream` then waits for, else a fresh one.
  std::byte* allocate(Stream& stream, size_t bytes);
  /// From here on in the order of `stream` nothing uses the block.
  void release(Stream& stream, std::byte* block, size_t bytes);
  /// The device is done with everything: blocks that were not used since the call before the last one are
  /// freed.
  void trim();
  /// Frees all blocks, those still held too. The device is done with them, and this is used no more.
  void clear();

 private:
  struct FreeBlock {
    std::byte* at;
    const Stream* released_on;
    EventRef released;  // null: the device is done with it
    uint64_t period;
  };

  const std::function<std::byte*(size_t)> fresh_;
  const std::function<void(std::byte*)> free_;
  std::map<size_t, std::deque<FreeBlock>> released_;  // by bytes, the oldest release first
  std::set<std::byte*> all_;
  uint64_t period_ = 0;
};

}  // namespace stp
