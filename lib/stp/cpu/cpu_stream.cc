#include "stp/cpu/cpu_stream.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <stdexcept>
#include <utility>

namespace stp::cpu {
namespace {

class CpuEvent : public Event, public Awaited {
 public:
  explicit CpuEvent(const CpuStream& stream) : stream_(&stream), rank_(stream.rank()), name_(stream.name()) {}

  [[nodiscard]] double seconds() const override {
    if (!ready()) throw std::logic_error("the stream has not passed the event yet");
    return seconds_;
  }
  [[nodiscard]] bool ready() const override { return passed_.load(std::memory_order_acquire); }
  [[nodiscard]] std::string text() const override {
    return " waits for rank " + std::to_string(rank_) + ", " + name_;
  }
  [[nodiscard]] bool of(const CpuStream& stream) const { return stream_ == &stream; }

  void pass(double now) {
    {
      const std::lock_guard lock(mutex_);
      seconds_ = now;
      passed_.store(true, std::memory_order_release);
    }
    changed_.notify_all();
  }

  /// The host of `rank` waits.
  void wait(RunGuard& guard, int rank) {
    if (ready()) return;
    std::unique_lock lock(mutex_);
    guard.wait(
        lock, changed_, RunGuard::WaitFor::own_work, [this] { return ready(); },
        [&] { return "rank " + std::to_string(rank) + ", host," + text(); });
  }

 private:
  const CpuStream* const stream_;  // for comparison only: it may be destroyed
  const int rank_;
  const std::string name_;
  std::atomic<bool> passed_{false};
  double seconds_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
};

/// An op's time on the clock, from when its stream comes to it.
class OnClock : public Awaited {
 public:
  [[nodiscard]] bool ready() const override { return Clock::now() >= due_; }
  [[nodiscard]] Clock::time_point due() const override { return due_; }
  [[nodiscard]] std::string text() const override { return " takes its time"; }

  void begin(RunGuard& guard, double seconds) {
    due_ = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
    work_.emplace(guard);
  }
  void end() { work_.reset(); }

 private:
  Clock::time_point due_;
  std::optional<RunGuard::Work> work_;  // no deadline expires meanwhile
};

}  // namespace

CpuStream::CpuStream(CpuRun& run, std::vector<CpuStream*>& streams, int rank, std::string name)
    : Stream(rank),
      run_(run),
      streams_(streams),
      rank_(rank),
      name_(std::move(name)),
      queue_(
          run.workers, [this](const Task& task) { perform(task); },
          [this](std::optional<uint32_t> op) { return run_.where(rank_, name_, op); }) {
  streams_.push_back(this);
}

EventRef CpuStream::record() {
  auto event = std::make_shared<CpuEvent>(*this);
  note_record(*event);
  enqueue_after(nullptr, [this, event] { event->pass(run_.now()); });
  latest_ = event;
  return event;
}

void CpuStream::wait(const EventRef& event) {
  auto awaited = std::dynamic_pointer_cast<CpuEvent>(event);
  if (!awaited) throw std::logic_error("a stream cannot wait for an event of another backend");
  note_wait(*event);
  if (!awaited->ready() && !awaited->of(*this)) enqueue_after(std::move(awaited), nullptr);
}

void CpuStream::start(uint32_t op) {
  if (run_.hooks.issue) run_.hooks.issue(rank_, op);
  if (run_.hooks.start) enqueue_waiting([this, op] { run_.hooks.start(run_.guard, rank_, op); });
  if (!run_.hooks.takes) return;
  const auto time = std::make_shared<OnClock>();
  enqueue_after(nullptr, [this, time, op] { time->begin(run_.guard, run_.hooks.takes(rank_, op)); });
  enqueue_after(time, [time] { time->end(); });
}

void CpuStream::enqueue(std::function<void()> task) {
  give({Task::Kind::computes, std::move(task), {}, op_});
}

void CpuStream::enqueue_waiting(std::function<void()> task) {
  give({Task::Kind::waits, std::move(task), {}, op_});
}

void CpuStream::enqueue_after(std::shared_ptr<const Awaited> after, std::function<void()> task) {
  give({Task::Kind::signals, std::move(task), std::move(after), op_});
}

void CpuStream::give(Task task) {
  latest_ = nullptr;
  queue_.push(std::move(task));
}

void CpuStream::synchronize() {
  std::static_pointer_cast<CpuEvent>(fence())->wait(run_.guard, rank_);
  run_.guard.check();
}

void CpuStream::perform(const Task& task) {
  if (run_.guard.failed()) return;
  running_ = task.op;
  try {
    if (task.kind == Task::Kind::computes) {
      const RunGuard::Work work(run_.guard);
      task.run();
    } else {
      if (task.run) task.run();
      run_.guard.progress();
    }
  } catch (const Cancelled&) {
    // The failure is reported already.
  } catch (const std::exception& error) {
    run_.guard.fail(where() + ": " + error.what());
  } catch (...) {
    run_.guard.fail(where() + ": an unknown failure");
  }
}

CpuStream& cpu_stream(Stream& stream) {
  auto* ours = dynamic_cast<CpuStream*>(&stream);
  if (ours == nullptr) throw std::logic_error("the stream is of another backend");
  return *ours;
}

}  // namespace stp::cpu
