#include "stp/cuda/nccl/watchdog.h"

#include <cstdio>
#include <cstdlib>
#include <utility>

namespace stp::cuda {

Watchdog::Watchdog(RunGuard& guard) : guard_(guard), thread_([this] { watch(); }) {}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  ends_.notify_all();
  thread_.join();
}

Watchdog::Call::Call(Watchdog& watchdog, std::string what, double patience) : watchdog_(watchdog) {
  const std::lock_guard lock(watchdog_.mutex_);
  watchdog_.current_.emplace(
      Current{std::move(what), watchdog_.guard_.idle(), patience * watchdog_.guard_.deadline()});
}

Watchdog::Call::~Call() {
  const std::lock_guard lock(watchdog_.mutex_);
  watchdog_.current_.reset();
}

void Watchdog::watch() {
  std::unique_lock lock(mutex_);
  bool is_late = false;
  while (!over_) {
    ends_.wait_for(lock, RunGuard::kPollInterval);
    const bool was_late = is_late;
    is_late = current_ && current_->idle.time() > current_->limit;
    // It looks twice: after a stop of the whole process, the call may be about to return.
    if (over_ || !is_late || !was_late) continue;
    guard_.fail_idle(current_->what + " does not return", current_->limit);
    std::fprintf(stderr, "stp: %s; the process is ended\n", guard_.failure().c_str());
    std::_Exit(1);
  }
}

}  // namespace stp::cuda
