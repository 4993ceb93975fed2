#include "stp/cpu/workers.h"

#include <algorithm>
#include <system_error>
#include <utility>

namespace stp::cpu {
namespace {

/// Maximum number of queued tasks before the host waits.
constexpr size_t kQueueLimit = 4096;

/// How often a thread without work yields its processor and looks again before it sleeps. Most tasks come
/// within microseconds, and to wake a thread takes longer.
constexpr int kLooks = 10;

/// For how long before a task is due a thread stays awake: the system wakes it that late.
constexpr std::chrono::microseconds kAwake{200};

}  // namespace

Workers::Workers(RunGuard& guard) : guard_(guard) {
#ifdef PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP
  // A thread that finds it locked spins before it sleeps: it is never locked for long.
  *mutex_.native_handle() = PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP;
#endif
}

Workers::~Workers() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

bool Workers::can_go_on(const Queue& queue) const {
  if (queue.performed_) return false;
  const Task* const task = queue.next();
  return task != nullptr && (!task->after || task->after->ready() || guard_.failed());
}

Workers::Queue* Workers::choose() {
  for (size_t i = 0; i < queues_.size(); ++i) {
    turn_ = turn_ + 1 < queues_.size() ? turn_ + 1 : 0;
    if (can_go_on(*queues_[turn_])) return queues_[turn_];
  }
  return nullptr;
}

// When the clock next lets a queue go on.
Clock::time_point Workers::first_due() const {
  Clock::time_point due = Awaited::kNever;
  for (const Queue* const queue : queues_) {
    const Task* const task = queue->performed_ ? nullptr : queue->next();
    if (task != nullptr && task->after) due = std::min(due, task->after->due());
  }
  return due;
}

void Workers::begin_another() {
  if (free_ > 0) {
    changed_.notify_one();
  } else {
    ++free_;
    try {
      threads_.emplace_back([this] { work(); });
    } catch (const std::system_error&) {  // no more threads
      --free_;
      if (threads_.empty()) throw;
    }
  }
}

// Another thread begins if a processor is free and a queue can go on.
void Workers::offer() {
  if (performing_ - waiting_ < processors_ &&
      std::ranges::any_of(queues_, [this](const Queue* queue) { return can_go_on(*queue); }))
    begin_another();
}

void Workers::work() {
  int looks = 0;
  std::unique_lock lock(mutex_);
  for (;;) {
    const bool has_processor = performing_ - waiting_ < processors_;
    Queue* const queue = has_processor ? choose() : nullptr;
    if (queue == nullptr) {
      if (closing_) return;
      const auto now = Clock::now(), latest = now + RunGuard::kPollInterval, awake = first_due() - kAwake;
      if (looks++ < kLooks || (awake <= now && has_processor)) {
        lock.unlock();
        std::this_thread::yield();
        lock.lock();
        continue;
      }
      const auto until = awake <= now ? latest : std::min(awake, latest);
      if (changed_.wait_until(lock, until) == std::cv_status::timeout) watch(lock);
      continue;
    }
    looks = 0;
    --free_;
    ++performing_;
    queue->performed_ = true;
    queue->idle_.reset();
    if (queue->next_ == queue->taken_.size()) {
      queue->taken_.clear();
      queue->next_ = 0;
      queue->taken_.swap(queue->given_);
      drained_.notify_all();
    }
    offer();
    perform(lock, *queue);
    queue->performed_ = false;
    --performing_;
    ++free_;
    if (queue->next() == nullptr) drained_.notify_all();
  }
}

// Performs what was taken, up to a task that has to wait. Unlocks meanwhile.
void Workers::perform(std::unique_lock<std::mutex>& lock, Queue& queue) {
  lock.unlock();
  bool signalled = false;  // other queues may go on since this thread last offered them
  for (; queue.next_ < queue.taken_.size(); ++queue.next_) {
    Task& task = queue.taken_[queue.next_];
    if (task.after && !task.after->ready() && !guard_.failed()) break;
    const bool waits = task.kind == Task::Kind::waits;
    if (waits) {
      lock.lock();
      ++waiting_;
      // At least one thread is free then, to watch().
      if (free_ == 0)
        begin_another();
      else
        offer();
      lock.unlock();
    } else if (signalled && task.kind == Task::Kind::computes) {
      lock.lock();
      offer();
      lock.unlock();
      signalled = false;
    }
    queue.perform_(task);
    signalled = signalled || task.kind != Task::Kind::computes;
    task.run = nullptr;  // now, not with the whole batch: it may hold memory
    task.after = nullptr;
    if (waits) {
      lock.lock();
      --waiting_;
      lock.unlock();
    }
  }
  lock.lock();
}

// Fails the run if a queue has waited until its deadline.
void Workers::watch(std::unique_lock<std::mutex>& lock) {
  for (Queue* const queue : queues_) {
    if (queue->performed_ || queue->next() == nullptr || can_go_on(*queue)) continue;
    const Task* const task = queue->next();
    if (!queue->idle_) queue->idle_.emplace(guard_.idle());
    const auto patience = guard_.patience(task->after->wait_for());
    if (queue->idle_->time() <= patience) continue;
    const std::string text = queue->where_(task->op) + task->after->text();
    if (can_go_on(*queue)) continue;  // the text may name nobody
    lock.unlock();
    guard_.fail_idle(text, patience);
    lock.lock();
    return;
  }
}

Workers::Queue::Queue(Workers& workers, std::function<void(const Task&)> perform,
                      std::function<std::string(std::optional<uint32_t>)> where)
    : workers_(workers), perform_(std::move(perform)), where_(std::move(where)) {
  const std::lock_guard lock(workers_.mutex_);
  workers_.queues_.push_back(this);
}

Workers::Queue::~Queue() {
  std::unique_lock lock(workers_.mutex_);
  // No deadline: watch() has one for what the tasks wait for.
  workers_.drained_.wait(lock, [this] { return !performed_ && next() == nullptr; });
  std::erase(workers_.queues_, this);
}

void Workers::Queue::push(Task task) {
  std::unique_lock lock(workers_.mutex_);
  try {
    workers_.guard_.wait(
        lock, workers_.drained_, RunGuard::WaitFor::own_work, [this] { return given_.size() < kQueueLimit; },
        [this] { return where_({}) + ": the host waits for room in the queue"; });
  } catch (const Cancelled&) {
    return;
  }
  given_.push_back(std::move(task));
  if (workers_.performing_ - workers_.waiting_ < workers_.processors_ && workers_.can_go_on(*this))
    workers_.begin_another();
}

}  // namespace stp::cpu
