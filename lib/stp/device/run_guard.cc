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

// The thread stays awake at first, because a sleeping thread is woken tens of microseconds late, but yields
// to other threads. Later it sleeps for a share of the time that it has waited, which bounds its delay.
void RunGuard::pause(std::chrono::steady_clock::duration waited) {
  constexpr std::chrono::microseconds kAwake{100};
  constexpr std::chrono::steady_clock::duration kLongest = std::chrono::microseconds(500);
  if (waited < kAwake)
    std::this_thread::yield();
  else
    std::this_thread::sleep_for(std::min(waited / 8, kLongest));
}

void RunGuard::fail_idle(const std::string& what, std::chrono::duration<double> time) {
  fail(nothing_moved(what, time));
}

}  // namespace stp
