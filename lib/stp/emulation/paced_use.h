// What paced calls (paced_communicator.h) took beyond what they are said to take, and of the device's memory.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <utility>

namespace stp {

struct PacedUse {
  int64_t calls = 0;
  /// By how much calls took longer than `Replay::times`: of all of them together, and of the worst one.
  double late_s = 0, latest_s = 0;
  /// Buffers that stand for the links: what the call with the most had, which the ledger does not count. The
  /// calls of several groups may have theirs at once.
  size_t link_bytes = 0;

  PacedUse& operator+=(const PacedUse& other) {
    calls += other.calls;
    late_s += other.late_s;
    latest_s = std::max(latest_s, other.latest_s);
    link_bytes += other.link_bytes;
    return *this;
  }
};

/// Of one end of a group, counted by whoever carries its calls out.
class PacedCounter {
 public:
  void count(double late_s, size_t link_bytes) {
    const std::lock_guard lock(mutex_);
    use_.calls += 1;
    use_.late_s += late_s;
    use_.latest_s = std::max(use_.latest_s, late_s);
    use_.link_bytes = std::max(use_.link_bytes, link_bytes);
  }
  /// Since this was last asked.
  PacedUse take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(use_, {});
  }

 private:
  std::mutex mutex_;
  PacedUse use_;
};

}  // namespace stp
