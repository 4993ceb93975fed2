#include "stp/device/memory_tracker.h"

#include <algorithm>
#include <stdexcept>

namespace stp {

void MemoryTracker::check_limit(const std::string& what, size_t bytes) const {
  if (limit_ == 0 || all_ + scratch_ + bytes <= limit_) return;
  std::string text =
      std::to_string(bytes) + " bytes (" + what + ") requested, limit " + std::to_string(limit_) + ", held";
  for (int each = 0; each < static_cast<int>(MemoryKind::host); ++each)
    text += (each == 0 ? " " : ", ") + to_string(static_cast<MemoryKind>(each)) + " " +
            std::to_string(held_[each]);
  if (scratch_ > 0) text += ", scratch " + std::to_string(scratch_);
  throw OutOfMemory(*this, text);
}

void MemoryTracker::add_scratch(size_t bytes) {
  check_limit("scratch", bytes);
  scratch_ += bytes;
}

void MemoryTracker::allocate(MemoryKind kind, size_t bytes) {
  const bool on_device = kind != MemoryKind::host;
  if (on_device) check_limit(to_string(kind), bytes);
  const auto index = static_cast<size_t>(kind);
  held_[index] += bytes;
  peak_[index] = std::max(peak_[index], held_[index]);
  if (!on_device) return;
  all_ += bytes;
  all_peak_ = std::max(all_peak_, all_);
}

void MemoryTracker::release(MemoryKind kind, size_t bytes) {
  const auto index = static_cast<size_t>(kind);
  if (held_[index] < bytes) throw std::logic_error("more " + to_string(kind) + " memory released than held");
  held_[index] -= bytes;
  if (kind != MemoryKind::host) all_ -= bytes;
}

void MemoryTracker::retag(MemoryKind from, MemoryKind to, size_t bytes) {
  if (from == to) return;
  if (from == MemoryKind::host || to == MemoryKind::host)
    throw std::logic_error("memory of the host and of the device cannot become each other");
  const auto source = static_cast<size_t>(from), target = static_cast<size_t>(to);
  if (held_[source] < bytes)
    throw std::logic_error("more " + to_string(from) + " memory changed its kind than held");
  held_[source] -= bytes;
  held_[target] += bytes;
  peak_[target] = std::max(peak_[target], held_[target]);
}

}  // namespace stp
