#include "stp/cuda/issue_order.h"

#include <algorithm>
#include <exception>
#include <set>
#include <utility>

namespace stp::cuda {

std::string JointStep::missing() const {
  std::string text;
  for (size_t party = 0; party < there_.size(); ++party)
    if (there_[party] == nullptr)
      text += (text.empty() ? "rank " : ", rank ") + std::to_string(ranks_[party]);
  return text;
}

IssueQueue::IssueQueue(IssueOrder& order, int rank, std::string name, std::function<bool()> has_room)
    : order_(order), rank_(rank), name_(std::move(name)), has_room_(std::move(has_room)) {
  const std::lock_guard lock(order_.mutex_);
  order_.queues_.push_back(this);
}

IssueQueue::~IssueQueue() {
  const std::lock_guard lock(order_.mutex_);
  std::erase(order_.queues_, this);
  std::erase(order_.no_room_, this);
  std::erase(order_.turns_, this);
  if (steps_.empty()) return;
  const Step& head = steps_.front();
  if (head.needs) std::erase(head.needs->waiting_, this);
  if (head.joint && head.joint->there_[head.party] == this) {
    head.joint->there_[head.party] = nullptr;
    --head.joint->come_;
  }
}

void IssueQueue::push(std::optional<uint32_t> op, IssueWork work) {
  push_step({op, std::move(work), nullptr, nullptr, nullptr});
}

void IssueQueue::record(std::optional<uint32_t> op, std::shared_ptr<IssuePoint> point, IssueWork work) {
  push_step({op, std::move(work), nullptr, std::move(point), nullptr});
}

void IssueQueue::wait(std::optional<uint32_t> op, std::shared_ptr<IssuePoint> point, IssueWork work) {
  push_step({op, std::move(work), std::move(point), nullptr, nullptr});
}

void IssueQueue::join(std::optional<uint32_t> op, std::shared_ptr<JointStep> joint, size_t party) {
  push_step({op, nullptr, nullptr, nullptr, std::move(joint), party});
}

void IssueQueue::push_step(Step step) {
  std::unique_lock lock(order_.mutex_);
  if (order_.run_.guard.failed()) return;
  if (steps_.size() >= order_.most_steps_) {
    const auto room = [this] { return steps_.size() < order_.most_steps_; };
    try {
      order_.wait(lock, rank_, "for room in the queue of " + name_, room, [] { return true; });
    } catch (const Cancelled&) {
      return;  // as all calls of a run that has failed
    }
  }
  if (step.point) step.point->place_ = order_.place(*this, step);
  steps_.push_back(std::move(step));
  if (order_.ranks_ == 1) order_.turns_.push_back(this);
  order_.pump(steps_.size() == 1 ? this : nullptr);
}

IssueOrder::IssueOrder(RunContext& run, int ranks, IssueDevice* device, size_t most_steps,
                       std::chrono::microseconds look)
    : run_(run), ranks_(ranks), device_(device), most_steps_(most_steps), look_(look) {}

std::unique_ptr<IssueQueue> IssueOrder::make_queue(int rank, std::string name,
                                                   std::function<bool()> has_room) {
  return std::unique_ptr<IssueQueue>(new IssueQueue(*this, rank, std::move(name), std::move(has_room)));
}

void IssueOrder::wait(int rank, const std::string& who, const std::function<bool()>& issued,
                      const std::function<bool()>& passed) {
  Lock lock(mutex_);
  wait(lock, rank, who, issued, passed);
}

void IssueOrder::wait_for(int rank, const std::string& who, const IssuePoint& point,
                          const std::function<bool()>& passed) {
  wait(
      rank, who, [&] { return point.issued_; }, passed);
}

bool IssueOrder::is_issued(const IssuePoint& point) {
  const std::lock_guard lock(mutex_);
  return point.issued_;
}

void IssueOrder::wait(Lock& lock, int rank, const std::string& who, const std::function<bool()>& issued,
                      const std::function<bool()>& passed) {
  Waiter waiter{rank, {}};
  waiters_.push_back(&waiter);
  const auto ready = [&] {
    pump(nullptr);
    if (issued()) {
      waiter.blocked_at.reset();
      return passed();
    }
    waiter.blocked_at = moves_;
    if (stuck()) run_.guard.fail("all ranks wait, and nothing more can be issued: " + blocked());
    return false;
  };
  const auto what = [&] {
    std::string text = run_.where(rank, "host", {}) + " waits " + who;
    if (const std::string head = blocked(); !head.empty()) text += "; " + head;
    if (device_ == nullptr) return text;
    const std::string first = device_->unfinished();
    return first.empty() ? text : first + " is not done; " + text;
  };
  try {
    run_.guard.wait(lock, moved_, RunGuard::WaitFor::own_work, ready, what, look_);
    run_.guard.check();
  } catch (...) {
    std::erase(waiters_, &waiter);
    throw;
  }
  std::erase(waiters_, &waiter);
}

bool IssueOrder::stuck() const {
  if (!no_room_.empty()) return false;
  std::set<int> blocked;
  for (const Waiter* waiter : waiters_)
    if (waiter->blocked_at == moves_) blocked.insert(waiter->rank);
  return static_cast<int>(blocked.size()) == ranks_;
}

std::string IssueOrder::place(const IssueQueue& queue, const IssueQueue::Step& step) const {
  return run_.where(queue.rank_, queue.name_, step.op);
}

std::string IssueOrder::blocked() const {
  std::string text;
  for (const IssueQueue* queue : queues_) {
    if (queue->steps_.empty()) continue;
    const IssueQueue::Step& step = queue->steps_.front();
    text += (text.empty() ? "" : "; ") + place(*queue, step) + " waits ";
    if (step.needs && !step.needs->issued_)
      text += "for " + (step.needs->place_.empty() ? "an event that nobody records" : step.needs->place_);
    else if (step.joint && !step.joint->complete())
      text += "in " + step.joint->name_ + " for " + step.joint->missing();
    else
      text += "for the device";
  }
  return text;
}

// Issues all that can be: of `first`, which has a new step, and of what that lets go on.
void IssueOrder::pump(IssueQueue* first) {
  const uint64_t before = moves_;
  ready_.swap(no_room_);
  if (first != nullptr) ready_.push_back(first);
  while (!ready_.empty()) {
    IssueQueue* queue = ready_.back();
    ready_.pop_back();
    issue_from(*queue);
  }
  show(nullptr, {});
  if (moves_ != before && !waiters_.empty()) moved_.notify_all();
}

void IssueOrder::issue_from(IssueQueue& queue) {
  while (!queue.steps_.empty() && !run_.guard.failed() && may_issue(queue)) issue(queue);
}

// Where it may not, what it waits for will have it asked again.
bool IssueOrder::may_issue(IssueQueue& queue) {
  if (ranks_ == 1 && turns_.front() != &queue) return false;
  const IssueQueue::Step& step = queue.steps_.front();
  if (step.needs && !step.needs->issued_) {
    auto& waiting = step.needs->waiting_;
    if (std::find(waiting.begin(), waiting.end(), &queue) == waiting.end()) waiting.push_back(&queue);
    return false;
  }
  if (step.joint) {
    IssueQueue*& here = step.joint->there_[step.party];
    if (here == nullptr) {
      here = &queue;
      ++step.joint->come_;
    }
    if (!step.joint->complete()) return false;
  }
  const auto room = [](const IssueQueue* each) { return !each->has_room_ || each->has_room_(); };
  if (step.joint ? std::all_of(step.joint->there_.begin(), step.joint->there_.end(), room) : room(&queue))
    return true;
  if (std::find(no_room_.begin(), no_room_.end(), &queue) == no_room_.end()) no_room_.push_back(&queue);
  return false;
}

// The queue's next step, and, of a joint one, that of all its parties.
void IssueOrder::issue(IssueQueue& queue) {
  const IssueQueue::Step step = std::move(queue.steps_.front());
  try {
    show(&queue, step.op);
    step.joint ? step.joint->work_() : step.work();
  } catch (const std::exception& error) {
    return run_.guard.fail(place(queue, step) + ": " + error.what());
  } catch (...) {
    return run_.guard.fail(place(queue, step) + ": an unknown failure");
  }
  ++moves_;
  run_.guard.progress();
  if (ranks_ == 1) {
    turns_.pop_front();
    if (!turns_.empty() && turns_.front() != &queue) ready_.push_back(turns_.front());
  }
  if (step.joint) {
    for (IssueQueue* party : step.joint->there_) {
      party->steps_.pop_front();
      if (party != &queue) ready_.push_back(party);
    }
  } else {
    queue.steps_.pop_front();
  }
  if (step.point) {
    step.point->issued_ = true;
    for (IssueQueue* waiting : step.point->waiting_) ready_.push_back(waiting);
    step.point->waiting_.clear();
  }
}

void IssueOrder::show(const IssueQueue* queue, std::optional<uint32_t> op) {
  if (device_ == nullptr || (queue == shown_queue_ && op == shown_op_)) return;
  if (shown_queue_ != nullptr) device_->end();
  shown_queue_ = queue;
  shown_op_ = op;
  if (queue != nullptr) device_->begin(queue->rank_, op);
}

}  // namespace stp::cuda
