#include "stp/device/memory_ledger.h"

#include <algorithm>
#include <stdexcept>

namespace stp {

void MemoryLedger::check_limit(const std::string& what, size_t bytes) const {
  if (limit_ == 0 || all_ + scratch_ + bytes <= limit_) return;
  std::string text = "out of memory: " + std::to_string(bytes) + " bytes (" + what + ") asked for, limit " +
                     std::to_string(limit_) + ", held";
  for (int each = 0; each < kMemoryKinds; ++each)
    text += (each == 0 ? " " : ", ") + to_string(static_cast<MemoryKind>(each)) + " " +
            std::to_string(held_[each]);
  if (scratch_ > 0) text += ", scratch " + std::to_string(scratch_);
  throw std::runtime_error(text);
}

void MemoryLedger::add_scratch(size_t bytes) {
  const std::lock_guard lock(mutex_);
  check_limit("scratch", bytes);
  scratch_ += bytes;
}

size_t MemoryLedger::scratch() const {
  const std::lock_guard lock(mutex_);
  return scratch_;
}

void MemoryLedger::allocate(MemoryKind kind, size_t bytes) {
  const std::lock_guard lock(mutex_);
  check_limit(to_string(kind), bytes);
  const auto index = static_cast<size_t>(kind);
  held_[index] += bytes;
  all_ += bytes;
  peak_[index] = std::max(peak_[index], held_[index]);
  all_peak_ = std::max(all_peak_, all_);
}

void MemoryLedger::release(MemoryKind kind, size_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto index = static_cast<size_t>(kind);
  if (held_[index] < bytes)
    throw std::logic_error("more " + to_string(kind) + " memory given back than held");
  held_[index] -= bytes;
  all_ -= bytes;
}

void MemoryLedger::retag(MemoryKind from, MemoryKind to, size_t bytes) {
  if (from == to) return;
  const std::lock_guard lock(mutex_);
  const auto source = static_cast<size_t>(from), target = static_cast<size_t>(to);
  if (held_[source] < bytes)
    throw std::logic_error("more " + to_string(from) + " memory changed its kind than held");
  held_[source] -= bytes;
  held_[target] += bytes;
  peak_[target] = std::max(peak_[target], held_[target]);
}

size_t MemoryLedger::held(MemoryKind kind) const {
  const std::lock_guard lock(mutex_);
  return held_[static_cast<size_t>(kind)];
}

size_t MemoryLedger::peak(MemoryKind kind) const {
  const std::lock_guard lock(mutex_);
  return peak_[static_cast<size_t>(kind)];
}

size_t MemoryLedger::held() const {
  const std::lock_guard lock(mutex_);
  return all_;
}

size_t MemoryLedger::peak() const {
  const std::lock_guard lock(mutex_);
  return all_peak_;
}

void MemoryLedger::reset_peaks() {
  const std::lock_guard lock(mutex_);
  peak_ = held_;
  all_peak_ = all_;
}

}  // namespace stp
