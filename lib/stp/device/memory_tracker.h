// Counts the bytes that a device's allocator holds, by kind, at each call that allocates or releases. It does
// not use the units' declarations.
#pragma once

#include <array>
#include <cstddef>
#include <stdexcept>
#include <string>

#include "stp/device/tensor.h"

namespace stp {

class MemoryTracker;

/// A device has too little memory, or its limit is too low.
struct OutOfMemory : std::runtime_error {
  OutOfMemory(const MemoryTracker& of, const std::string& why)
      : std::runtime_error("out of memory: " + why), memory(&of) {}
  const MemoryTracker* memory;  // of the device
};

/// Only the thread that issues work uses it.
class MemoryTracker {
 public:
  /// `limit`: for the device's bytes, all kinds but `host` together; 0: none.
  explicit MemoryTracker(size_t limit = 0) : limit_(limit) {}

  /// Throws OutOfMemory with the bytes held by kind, and counts nothing, if the limit would be exceeded.
  void allocate(MemoryKind kind, size_t bytes);
  void release(MemoryKind kind, size_t bytes);
  void retag(MemoryKind from, MemoryKind to, size_t bytes);

  /// Memory that kernels need besides tensors. It counts only for the limit, not for the kinds and sums
  /// below. Throws like allocate().
  void add_scratch(size_t bytes);
  void release_scratch(size_t bytes) { scratch_ -= bytes; }
  [[nodiscard]] size_t scratch() const { return scratch_; }

  [[nodiscard]] size_t held(MemoryKind kind) const { return held_[static_cast<size_t>(kind)]; }
  [[nodiscard]] size_t peak(MemoryKind kind) const { return peak_[static_cast<size_t>(kind)]; }
  [[nodiscard]] size_t held() const { return all_; }
  [[nodiscard]] size_t peak() const { return all_peak_; }  // of all kinds but `host` together

 private:
  void check_limit(const std::string& what, size_t bytes) const;

  const size_t limit_;
  std::array<size_t, kMemoryKinds> held_{}, peak_{};
  size_t all_ = 0, all_peak_ = 0, scratch_ = 0;
};

}  // namespace stp
