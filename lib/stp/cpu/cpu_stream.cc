#include "stp/cpu/cpu_stream.h"

#include <exception>
#include <stdexcept>
#include <utility>

namespace stp::cpu {
namespace {

/// Maximum number of queued tasks before the host waits.
constexpr size_t kQueueLimit = 4096;

class CpuEvent : public Event {
 public:
  explicit CpuEvent(const CpuStream& stream) : stream_(&stream), rank_(stream.rank()), name_(stream.name()) {}

  [[nodiscard]] double seconds() const override {
    if (!passed()) throw std::logic_error("the stream has not passed the event yet");
    return seconds_;
  }
  [[nodiscard]] bool passed() const { return passed_.load(std::memory_order_acquire); }
  [[nodiscard]] bool of(const CpuStream& stream) const { return stream_ == &stream; }

  void pass(double now) {
    {
      const std::lock_guard lock(mutex_);
      seconds_ = now;
      passed_.store(true, std::memory_order_release);
    }
    changed_.notify_all();
  }

  /// `where()` returns the text of the waiting stream.
  template <typename Where>
  void wait(RunGuard& guard, Where where) {
    if (passed()) return;
    std::unique_lock lock(mutex_);
    guard.wait(
        lock, changed_, RunGuard::WaitFor::own_work, [this] { return passed(); },
        [&] { return where() + " waits for rank " + std::to_string(rank_) + ", " + name_; });
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

}  // namespace

CpuStream::CpuStream(CpuRun& run, int rank, std::string name)
    : Stream(rank), run_(run), rank_(rank), name_(std::move(name)), worker_([this] { work(); }) {}

CpuStream::~CpuStream() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  filled_.notify_one();
  worker_.join();
}

EventRef CpuStream::record() {
  auto event = std::make_shared<CpuEvent>(*this);
  note_record(*event);
  push({[this, event] { event->pass(run_.now()); }, op_, true});
  latest_ = event;
  return event;
}

void CpuStream::wait(const EventRef& event) {
  const auto awaited = std::dynamic_pointer_cast<CpuEvent>(event);
  if (!awaited) throw std::logic_error("a stream cannot wait for an event of another backend");
  note_wait(*event);
  if (awaited->passed() || awaited->of(*this)) return;
  push({[this, awaited] { awaited->wait(run_.guard, [this] { return where(); }); }, op_, true});
}

void CpuStream::start(uint32_t op) {
  if (run_.hooks.issue) run_.hooks.issue(rank_, op);
  if (run_.hooks.start) enqueue_waiting([this, op] { run_.hooks.start(run_.guard, rank_, op); });
}

void CpuStream::enqueue(std::function<void()> task) { push({std::move(task), op_, false}); }

void CpuStream::enqueue_waiting(std::function<void()> task) { push({std::move(task), op_, true}); }

void CpuStream::synchronize() {
  const auto event = std::static_pointer_cast<CpuEvent>(fence());
  event->wait(run_.guard, [this] { return "rank " + std::to_string(rank_) + ", host,"; });
  run_.guard.check();
}

void CpuStream::push(Task task) {
  latest_ = nullptr;
  bool wake = false;
  try {
    std::unique_lock lock(mutex_);
    run_.guard.wait(
        lock, emptied_, RunGuard::WaitFor::own_work, [this] { return queue_.size() < kQueueLimit; },
        [this] {
          return "rank " + std::to_string(rank_) + ", host, waits for room in the queue of " + name_;
        });
    queue_.push_back(std::move(task));
    wake = std::exchange(idle_, false);
  } catch (const Cancelled&) {
    return;
  }
  if (wake) filled_.notify_one();
}

void CpuStream::work() {
  std::vector<Task> taken;
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      // No deadline: an idle stream is not a failure.
      while (queue_.empty() && !closing_) {
        idle_ = true;
        filled_.wait(lock);
      }
      idle_ = false;
      if (queue_.empty()) return;
      taken.swap(queue_);
    }
    emptied_.notify_one();
    for (Task& task : taken) {
      perform(task);
      task.run = nullptr;  // now, not with the whole batch: it may hold memory
    }
    taken.clear();
  }
}

void CpuStream::perform(Task& task) {
  if (run_.guard.failed()) return;
  running_ = task.op;
  try {
    if (task.waits) {
      task.run();
      run_.guard.progress();
    } else {
      const RunGuard::Work work(run_.guard);
      task.run();
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
