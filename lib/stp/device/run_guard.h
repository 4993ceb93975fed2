// Keeps a run from hanging. The first failure of any rank ends all waits of all ranks. A wait fails if no
// rank makes progress or computes until the deadline.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <stdexcept>
#include <string>

#include "stp/processes/progress.h"

namespace stp {

/// Thrown by waits when the run has failed elsewhere; RunGuard::failure() has the cause.
class Cancelled : public std::runtime_error {
 public:
  Cancelled() : std::runtime_error("the run was cancelled") {}
};

/// One per run, shared by all its ranks and threads.
class RunGuard {
 public:
  /// `progress`: shared by the run's processes, if there are several.
  explicit RunGuard(std::chrono::duration<double> deadline, Progress* progress = nullptr)
      : deadline_(deadline), progress_(progress == nullptr ? own_progress_ : *progress) {}

  /// Ends the run. Only the first failure is kept; later ones are mostly its consequences.
  void fail(const std::string& what);
  [[nodiscard]] bool failed() const { return failed_.load(std::memory_order_acquire); }
  /// The first failure; "" if there is none.
  [[nodiscard]] std::string failure() const;
  /// Throws Cancelled if the run has failed.
  void check() const {
    if (failed()) throw Cancelled();
  }

  /// Call after any work: it restarts all deadlines.
  void progress() { progress_.done.fetch_add(1, std::memory_order_relaxed); }
  /// Whether any thread is computing.
  [[nodiscard]] bool working() const { return progress_.working.load(std::memory_order_relaxed) > 0; }

  /// Held by a thread while it computes: no deadline expires during that time.
  class Work {
   public:
    explicit Work(RunGuard& guard) : guard_(guard) {
      guard.progress_.working.fetch_add(1, std::memory_order_relaxed);
    }
    Work(const Work&) = delete;
    Work& operator=(const Work&) = delete;
    ~Work() {
      guard_.progress();
      guard_.progress_.working.fetch_sub(1, std::memory_order_relaxed);
    }

   private:
    RunGuard& guard_;
  };

  /// The subject of a wait. A wait for own work lasts longer, because the rank may itself wait for a peer:
  /// the wait for the peer then fails first, and its message names the missing peer.
  enum class WaitFor { peer, own_work };

  /// How often a waiting thread checks whether the run has failed.
  static constexpr std::chrono::milliseconds kPollInterval{50};

  /// Waits until `ready()`; `lock` holds the mutex that guards it. Throws Cancelled if the run fails during
  /// the wait. If nothing made progress for the deadline (twice the deadline for `own_work`), fails the run
  /// with the text that `what()` returns, unless it is ready after that: such a text names nobody.
  template <typename Ready, typename What>
  void wait(std::unique_lock<std::mutex>& lock, std::condition_variable& changed, WaitFor wait_for,
            Ready ready, What what) {
    if (ready()) return;
    const auto deadline = patience(wait_for);
    Idle idle(progress_);
    for (;;) {
      check();
      changed.wait_for(lock, kPollInterval);
      if (ready()) return;
      if (idle.time() <= deadline) continue;
      const std::string text = what();
      if (ready()) return;
      lock.unlock();
      fail_idle(text, deadline);
      lock.lock();
      throw Cancelled();
    }
  }

  /// The same without mutex and notification: it polls, less often the longer the wait lasts.
  template <typename Ready, typename What>
  void poll(WaitFor wait_for, Ready ready, What what) {
    const auto deadline = patience(wait_for);
    const auto start = std::chrono::steady_clock::now();
    for (Idle idle(progress_); !ready(); pause(std::chrono::steady_clock::now() - start)) {
      check();
      if (idle.time() <= deadline) continue;
      const std::string text = what();
      if (ready()) return;
      fail_idle(text, deadline);
      throw Cancelled();
    }
  }

  [[nodiscard]] std::chrono::duration<double> deadline() const { return deadline_; }
  /// How long such a wait lasts at most while nothing moves.
  [[nodiscard]] std::chrono::duration<double> patience(WaitFor wait_for) const {
    return wait_for == WaitFor::peer ? deadline_ : 2 * deadline_;
  }
  /// Fails the run: "`what`: nothing moved for 10 s".
  void fail_idle(const std::string& what, std::chrono::duration<double> time);

  /// Measures how long nothing has moved, for threads with their own waits.
  [[nodiscard]] Idle idle() const { return Idle(progress_); }

 private:
  /// Pauses between two polls of a thread that has waited for `waited`.
  static void pause(std::chrono::steady_clock::duration waited);

  const std::chrono::duration<double> deadline_;
  Progress own_progress_;
  Progress& progress_;
  std::atomic<bool> failed_{false};
  mutable std::mutex mutex_;
  std::string failure_;
};

}  // namespace stp
