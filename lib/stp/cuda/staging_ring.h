// Which part of a block of host memory is on its way to or from a device. Nothing here knows of CUDA.
#pragma once

#include <cstddef>
#include <deque>
#include <mutex>
#include <optional>

namespace stp::cuda {

/// Pieces of a block of `capacity` bytes, taken one behind the other, round and round. They may come back in
/// any order, but room is made in the order in which they were taken. Threads may call it at once.
class StagingRing {
 public:
  static constexpr size_t kAlignment = 256;

  explicit StagingRing(size_t capacity) : capacity_(capacity) {}

  /// Where in the block `bytes` may lie, a multiple of kAlignment; nothing where there is no room now. Throws
  /// std::logic_error if they are none, or more than the whole block.
  std::optional<size_t> take(size_t bytes);
  /// Throws std::logic_error if no piece that was taken begins at `at`.
  void give_back(size_t at);

  [[nodiscard]] size_t capacity() const { return capacity_; }

 private:
  struct Piece {
    size_t begin, end;
    bool free;
  };
  [[nodiscard]] std::optional<size_t> room_for(size_t size) const;

  const size_t capacity_;
  std::mutex mutex_;
  std::deque<Piece> pieces_;  // as they were taken; the first is not free
};

}  // namespace stp::cuda
