#include "stp/device/run_guard.h"

#include <sstream>

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

std::chrono::duration<double> RunGuard::Idle::time() {
  const auto now = std::chrono::steady_clock::now();
  const uint64_t progress = guard_.progress_.load(std::memory_order_relaxed);
  if (progress != seen_ || guard_.working_.load(std::memory_order_relaxed) > 0) {
    seen_ = progress;
    since_ = now;
  }
  return now - since_;
}

void RunGuard::fail_idle(const std::string& what, std::chrono::duration<double> time) {
  std::ostringstream text;
  text << what << ": nothing moved for " << time.count() << " s";
  fail(text.str());
}

}  // namespace stp
