// The threads that perform the tasks of all streams of a run. A stream is a queue, not a thread: where its
// next task has to wait for another stream, its thread goes on with a stream that can, so a wait switches no
// threads.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "stp/device/run_guard.h"

namespace stp::cpu {

using Clock = std::chrono::steady_clock;

/// What a task waits for before it starts.
class Awaited {
 public:
  virtual ~Awaited() = default;
  /// Once true, always true. Any thread may call it.
  [[nodiscard]] virtual bool ready() const = 0;
  /// Continues "rank 3, tp, F0.1": " waits for rank 2, compute".
  [[nodiscard]] virtual std::string text() const = 0;
  /// When the clock makes it ready; never: a task does.
  static constexpr Clock::time_point kNever = Clock::time_point::max();
  [[nodiscard]] virtual Clock::time_point due() const { return kNever; }
  [[nodiscard]] virtual RunGuard::WaitFor wait_for() const { return RunGuard::WaitFor::own_work; }
};

struct Task {
  enum class Kind {
    computes,
    signals,  // is short, and other queues may wait for it
    waits     // waits by itself: another thread takes the place of its thread
  };
  Kind kind;
  std::function<void()> run;             // empty: nothing
  std::shared_ptr<const Awaited> after;  // null: it can start at once
  std::optional<uint32_t> op;            // of the Program, for errors
};

class Workers {
 public:
  class Queue;

  /// As many threads compute at once as there are processors. `guard` must outlive the workers.
  explicit Workers(RunGuard& guard);
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;
  /// All queues must have ended.
  ~Workers();

 private:
  void work();
  void perform(std::unique_lock<std::mutex>& lock, Queue& queue);
  [[nodiscard]] bool can_go_on(const Queue& queue) const;
  Queue* choose();
  [[nodiscard]] Clock::time_point first_due() const;
  void begin_another();
  void offer();
  void watch(std::unique_lock<std::mutex>& lock);

  RunGuard& guard_;
  const int processors_ = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  std::mutex mutex_;  // guards all below, and the queues that no thread performs
  std::condition_variable changed_, drained_;
  std::vector<Queue*> queues_;
  size_t turn_ = 0;  // the queue that is looked at first
  int free_ = 0, performing_ = 0,
      waiting_ = 0;  // threads without a queue; with one; of those, in a task that waits
  bool closing_ = false;
  std::vector<std::thread> threads_;
};

/// Tasks that are performed in order, one at a time.
class Workers::Queue {
 public:
  /// `perform` must not throw. `where` returns "rank 3, tp, F0.1" for a task of that op, for errors.
  Queue(Workers& workers, std::function<void(const Task&)> perform,
        std::function<std::string(std::optional<uint32_t>)> where);
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;
  /// Waits until all tasks are done, or skipped by perform() because the run has failed.
  ~Queue();
  /// Waits while the queue is full. Drops the task if the run has failed meanwhile.
  void push(Task task);

 private:
  friend class Workers;
  /// The next task, or null.
  [[nodiscard]] const Task* next() const {
    if (next_ < taken_.size()) return &taken_[next_];
    return given_.empty() ? nullptr : &given_.front();
  }

  Workers& workers_;
  const std::function<void(const Task&)> perform_;
  const std::function<std::string(std::optional<uint32_t>)> where_;
  std::vector<Task> given_;
  bool performed_ = false;  // a thread performs taken_, which is then its own
  std::vector<Task> taken_;
  size_t next_ = 0;           // in taken_
  std::optional<Idle> idle_;  // since watch() saw it wait
};

}  // namespace stp::cpu
