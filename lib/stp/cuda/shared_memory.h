// How much shared memory of a size known at launch a block may have. What the kernel declares itself comes
// out of the same bytes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <map>
#include <mutex>
#include <utility>

namespace stp::cuda {

/// What a block may have without being asked for more, in bytes: what its kernel declares, and what its
/// launch adds.
inline constexpr size_t kDefaultShared = size_t{48} * 1024;

/// Kernels of all devices of `Target`, which has four functions:
///   int device(): the current one;
///   size_t most_shared(): the bytes that a block of it can have, when asked for;
///   size_t declared_shared(const void* kernel): those that the kernel declares;
///   void raise_shared(const void* kernel, size_t bytes): lets its launches add that many.
/// For several threads at once.
template <typename Target>
class SharedMemory {
 public:
  /// The most bytes that a launch of the kernel can add.
  size_t limit(const void* kernel) {
    const std::lock_guard lock(mutex_);
    const size_t most = Target::most_shared(), declared = use(kernel).declared;
    return most > declared ? most - declared : 0;
  }

  /// To be called before a launch on the current device that adds `bytes`.
  void allow(const void* kernel, size_t bytes) {
    if (bytes == 0) return;
    const std::lock_guard lock(mutex_);
    Use& known = use(kernel);
    if (bytes <= known.allowed) return;
    Target::raise_shared(kernel, bytes);
    known.allowed = bytes;
  }

 private:
  struct Use {
    size_t declared, allowed;
  };

  Use& use(const void* kernel) {
    const std::pair key(Target::device(), kernel);
    auto known = uses_.find(key);
    if (known == uses_.end()) {
      const size_t declared = Target::declared_shared(kernel);
      known = uses_.emplace(key, Use{declared, kDefaultShared - std::min(declared, kDefaultShared)}).first;
    }
    return known->second;
  }

  std::mutex mutex_;
  std::map<std::pair<int, const void*>, Use> uses_;
};

}  // namespace stp::cuda
