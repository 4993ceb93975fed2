// The order in which the work of streams is handed to a device that several ranks may share.
//
// To a GPU, waiting for an event that is not recorded yet is no wait at all, and streams that share one of
// its hardware queues hold each other up in the order in which they were given work. So each stream is a
// queue on the host, and nothing leaves it before what it waits for has: whatever the order in which the
// hosts push, the device is given the work of all streams in a topological order of their dependencies. Where
// one host pushes alone, that order is its own: processes that push their collectives in the same order have
// them issued in the same order, however full their queues are. Nothing here knows of CUDA.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "stp/device/run_context.h"

namespace stp::cuda {

class IssueOrder;
class IssueQueue;

/// Hands something to the device. It does not wait, pushes nothing, and is called once, by any thread, under
/// the order's mutex. What it throws fails the run, with rank, stream and op.
using IssueWork = std::function<void()>;

/// A point in a queue's order, for others to wait for.
class IssuePoint {
 private:
  friend class IssueOrder;
  friend class IssueQueue;
  // Guarded by the order's mutex.
  bool issued_ = false;
  std::string place_;  // "rank 0, compute, F0.1"; once it is pushed
  std::vector<IssueQueue*> waiting_;
};

/// A step of several queues at once: a collective, or a send with its receive.
class JointStep {
 public:
  /// `name` says which call this is, `ranks` of which ranks its parties are, for texts of failures. `work` is
  /// issued when each party's queue has come to this step.
  JointStep(std::string name, std::vector<int> ranks, IssueWork work)
      : name_(std::move(name)), ranks_(std::move(ranks)), work_(std::move(work)), there_(ranks_.size()) {}

 private:
  friend class IssueOrder;
  friend class IssueQueue;
  [[nodiscard]] bool complete() const { return come_ == there_.size(); }
  [[nodiscard]] std::string missing() const;

  const std::string name_;
  const std::vector<int> ranks_;
  IssueWork work_;
  // Guarded by the order's mutex.
  std::vector<IssueQueue*> there_;  // by party: the queue, once this step is its next
  size_t come_ = 0;
};

/// One stream's work that is not issued yet. All calls but the destructor's come from one host thread, that
/// of `rank`. They return at once, save where the queue is full; once the run has failed they do nothing.
class IssueQueue {
 public:
  /// Of work that was not issued, nothing is any more: synchronise before.
  ~IssueQueue();
  IssueQueue(const IssueQueue&) = delete;
  IssueQueue& operator=(const IssueQueue&) = delete;

  void push(std::optional<uint32_t> op, IssueWork work);
  /// `point`, which is new, counts as issued when `work` is.
  void record(std::optional<uint32_t> op, std::shared_ptr<IssuePoint> point, IssueWork work);
  /// `work` is issued after `point`.
  void wait(std::optional<uint32_t> op, std::shared_ptr<IssuePoint> point, IssueWork work);
  /// This queue is party `party` of `joint`.
  void join(std::optional<uint32_t> op, std::shared_ptr<JointStep> joint, size_t party);

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] const std::string& name() const { return name_; }

 private:
  friend class IssueOrder;
  struct Step {
    std::optional<uint32_t> op;
    IssueWork work;
    std::shared_ptr<IssuePoint> needs, point;
    std::shared_ptr<JointStep> joint;
    size_t party = 0;
  };
  IssueQueue(IssueOrder& order, int rank, std::string name, std::function<bool()> has_room);
  void push_step(Step step);

  IssueOrder& order_;
  const int rank_;
  const std::string name_;
  const std::function<bool()> has_room_;
  std::deque<Step> steps_;  // guarded by the order's mutex
};

/// What lies beneath an order. All calls come under the order's mutex.
class IssueDevice {
 public:
  virtual ~IssueDevice() = default;
  /// What is issued from here to end() is of this rank's op.
  virtual void begin(int rank, std::optional<uint32_t> op) = 0;
  virtual void end() = 0;
  /// Where the device is still at work, for failures: its first op that is not done. "" if nowhere.
  virtual std::string unfinished() = 0;
};

class IssueOrder {
 public:
  /// `ranks`: the hosts that push. `look`: how often a host that waits asks whether what it waits for is
  /// there. `run` and `device`, which may be null, outlive this.
  IssueOrder(RunContext& run, int ranks, IssueDevice* device = nullptr, size_t most_steps = kMostSteps,
             std::chrono::microseconds look = kPollInterval);

  /// This outlives its queues. `has_room`, if given, is asked before each step, under the order's mutex,
  /// whether the device takes more of this queue's work; where it does not, hosts that wait or push ask
  /// again.
  std::unique_ptr<IssueQueue> make_queue(int rank, std::string name, std::function<bool()> has_room = {});

  /// The host of `rank`, named `who` in failures, waits until `issued()`, which only issuing can bring about,
  /// and `passed()`, which the device does. Both are asked under the order's mutex. Throws Cancelled if the
  /// run has failed; fails it where the hosts of all ranks wait for what is not going to be issued, and where
  /// nothing moves for the deadline: naming the first of every queue's steps, and what it waits for.
  void wait(int rank, const std::string& who, const std::function<bool()>& issued,
            const std::function<bool()>& passed);
  /// Any thread may ask.
  bool is_issued(const IssuePoint& point);
  /// Until `point` is issued, and `passed()`.
  void wait_for(int rank, const std::string& who, const IssuePoint& point,
                const std::function<bool()>& passed);

 private:
  friend class IssueQueue;
  using Lock = std::unique_lock<std::mutex>;
  // A host that waits; `blocked_at`: how far issuing had come when it last asked in vain.
  struct Waiter {
    int rank;
    std::optional<uint64_t> blocked_at;
  };

  static constexpr size_t kMostSteps = 4096;
  static constexpr std::chrono::microseconds kPollInterval{200};

  void wait(Lock& lock, int rank, const std::string& who, const std::function<bool()>& issued,
            const std::function<bool()>& passed);
  void pump(IssueQueue* first);
  void issue_from(IssueQueue& queue);
  bool may_issue(IssueQueue& queue);
  void issue(IssueQueue& queue);
  void show(const IssueQueue* queue, std::optional<uint32_t> op);
  [[nodiscard]] bool stuck() const;
  [[nodiscard]] std::string blocked() const;
  [[nodiscard]] std::string place(const IssueQueue& queue, const IssueQueue::Step& step) const;

  RunContext& run_;
  const int ranks_;
  IssueDevice* const device_;
  const size_t most_steps_;
  const std::chrono::microseconds look_;

  std::mutex mutex_;
  std::condition_variable moved_;
  std::vector<IssueQueue*> queues_;
  std::vector<IssueQueue*> ready_;    // may have become issuable
  std::vector<IssueQueue*> no_room_;  // the device does not take their next step yet
  std::deque<IssueQueue*> turns_;     // of one host: whose steps are to be issued, in the order of the pushes
  std::vector<Waiter*> waiters_;
  uint64_t moves_ = 0;  // steps issued so far
  // What device_->begin() was called with.
  const IssueQueue* shown_queue_ = nullptr;
  std::optional<uint32_t> shown_op_;
};

}  // namespace stp::cuda
