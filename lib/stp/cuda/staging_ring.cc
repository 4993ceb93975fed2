#include "stp/cuda/staging_ring.h"

#include <algorithm>
#include <stdexcept>

namespace stp::cuda {

std::optional<size_t> StagingRing::take(size_t bytes) {
  const size_t size = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  if (size == 0 || size > capacity_) throw std::logic_error("a piece that no ring has room for");
  const std::lock_guard lock(mutex_);
  const std::optional<size_t> at = room_for(size);
  if (at) pieces_.push_back({*at, *at + size, false});
  return at;
}

std::optional<size_t> StagingRing::room_for(size_t size) const {
  if (pieces_.empty()) return 0;
  const size_t first = pieces_.front().begin, last = pieces_.back().end;
  if (pieces_.back().begin < first) return last + size <= first ? std::optional(last) : std::nullopt;
  if (last + size <= capacity_) return last;
  return size <= first ? std::optional<size_t>(0) : std::nullopt;
}

void StagingRing::give_back(size_t at) {
  const std::lock_guard lock(mutex_);
  const auto piece = std::find_if(pieces_.begin(), pieces_.end(),
                                  [&](const Piece& each) { return each.begin == at && !each.free; });
  if (piece == pieces_.end()) throw std::logic_error("a piece is given back that nobody has taken");
  piece->free = true;
  while (!pieces_.empty() && pieces_.front().free) pieces_.pop_front();
}

}  // namespace stp::cuda
