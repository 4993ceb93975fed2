#include "stp/device/run_guard.h"

#include <algorithm>
#include <thread>

namespace stp {

void RunGuard::fail(const std::string& what) {
  const std::lock_guard lock(mutex_);
  if (failed()) return;
  failure_ = what;
  failed_.store(true, std::memory_order_release);
}

std::string RunGuard::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

// At first awake, since a thread that sleeps is woken tens of microseconds late, but giving way to others
// that have work; then asleep for a part of what it has waited, so that it is late by no more than that.
void RunGuard::pause(std::chrono::steady_clock::duration waited) {
  constexpr std::chrono::microseconds kAwake{100};
  constexpr std::chrono::steady_clock::duration kLongest = std::chrono::milliseconds(1);
  if (waited < kAwake)
    std::this_thread::yield();
  else
    std::this_thread::sleep_for(std::min(waited / 8, kLongest));
}

void RunGuard::fail_idle(const std::string& what, std::chrono::duration<double> time) {
  fail(nothing_moved(what, time));
}

}  // namespace stp
