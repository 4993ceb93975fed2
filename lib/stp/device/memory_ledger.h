// Bytes that a device's allocator holds, by kind: counted where memory is allocated and released, never taken
// from what a unit declares.
#pragma once

#include <array>
#include <cstddef>
#include <mutex>
#include <string>

#include "stp/device/tensor.h"

namespace stp {

class MemoryLedger {
 public:
  /// `limit`: most bytes of all kinds together; 0: none.
  explicit MemoryLedger(size_t limit = 0) : limit_(limit) {}

  /// Throws std::runtime_error that says how much of which kind is held if the limit would be passed; then
  /// nothing is counted.
  void allocate(MemoryKind kind, size_t bytes);
  void release(MemoryKind kind, size_t bytes);
  void retag(MemoryKind from, MemoryKind to, size_t bytes);

  /// What kernels need while they run, beside all tensors: it counts for the limit, and for no kind nor sum
  /// below. Throws likewise.
  void add_scratch(size_t bytes);
  [[nodiscard]] size_t scratch() const;

  [[nodiscard]] size_t held(MemoryKind kind) const;
  [[nodiscard]] size_t peak(MemoryKind kind) const;
  [[nodiscard]] size_t held() const;
  [[nodiscard]] size_t peak() const;  // of all kinds together
  /// Peaks start again from what is held now.
  void reset_peaks();

 private:
  mutable std::mutex mutex_;
  const size_t limit_;
  std::array<size_t, kMemoryKinds> held_{}, peak_{};
  size_t all_ = 0, all_peak_ = 0, scratch_ = 0;

  void check_limit(const std::string& what, size_t bytes) const;
};

}  // namespace stp
