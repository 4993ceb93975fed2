#include "stp/cuda/cuda_stream.h"

#include <exception>
#include <stdexcept>
#include <utility>

#include "stp/cuda/cuda_check.h"

namespace stp::cuda {
namespace {

/// Calls that a stream may be ahead of the GPU, whose own queue holds about 1024 kernels and copies.
constexpr uint64_t kAhead = 256;
/// How far marks may lie apart.
constexpr uint64_t kStepsPerMark = 32;
/// Most calls that are issued together.
constexpr size_t kMostCalls = 64;

}  // namespace

CudaStream::CudaStream(CudaRun& run, int rank, std::string name, StreamPriority priority, bool graphs)
    : run_(run), rank_(rank), name_(std::move(name)), replays_(graphs) {
  run_.make_current();
  int lowest = 0, highest = 0;
  STP_CUDA(cudaDeviceGetStreamPriorityRange(&lowest, &highest));
  STP_CUDA(cudaStreamCreateWithPriority(&handle_, cudaStreamNonBlocking,
                                        priority == StreamPriority::compute ? lowest : highest));
  queue_ = run_.order.make_queue(rank_, name_, [this] { return has_room(); });
  const std::lock_guard lock(run_.streams_mutex_);
  run_.streams_.push_back(this);
}

CudaStream::~CudaStream() {
  try {
    synchronize();
  } catch (const std::exception&) {
    // The run has failed; whoever ends it knows.
  }
  {
    const std::lock_guard lock(run_.streams_mutex_);
    std::erase(run_.streams_, this);
    run_.ended_graphs_[rank_] += graphs();
  }
  queue_.reset();
  if (cudaStreamQuery(handle_) != cudaSuccess) {
    static_cast<void>(cudaGetLastError());  // the run has failed: that is known
    run_.left_at_work_ = true;
  }
  cudaStreamDestroy(handle_);  // does not wait
}

void CudaStream::begin(uint32_t op) {
  if (op != op_) flush();
  op_ = op;
}

EventRef CudaStream::record() {
  flush();
  auto event = std::make_shared<CudaEvent>(run_.events(), *this);
  queue_->record(op_, event, [this, op = op_, event] {
    run_.make_current();
    event->record(handle_);
    ++steps_;
    mark(event, op);
  });
  return event;
}

void CudaStream::wait(const EventRef& event) {
  const auto awaited = std::dynamic_pointer_cast<CudaEvent>(event);
  if (!awaited) throw std::logic_error("a stream is told to wait for an event of another backend");
  if (awaited->of(*this)) return;
  flush();
  queue_->wait(op_, awaited, [this, op = op_, awaited] {
    run_.make_current();
    STP_CUDA(cudaStreamWaitEvent(handle_, awaited->handle(), 0));
    issued(op);
  });
}

void CudaStream::enqueue(std::function<void(cudaStream_t)> work) {
  flush();
  queue_->push(op_, [this, op = op_, timed = timed_, work = std::move(work)] {
    run_.make_current();
    give(timed, [&] { work(handle_); });
    issued(op);
  });
}

void CudaStream::enqueue(std::unique_ptr<RepeatableCall> call) {
  calls_.push_back(std::move(call));
  if (calls_.size() >= kMostCalls) flush();
}

void CudaStream::flush() {
  if (calls_.empty()) return;
  const auto calls = std::make_shared<const Calls>(std::exchange(calls_, {}));
  queue_->push(op_, [this, op = op_, timed = timed_, calls] {
    run_.make_current();
    if (timed) {
      for (const auto& call : *calls) give(true, [&] { call->issue(handle_); });
    } else {
      graphs_.issue(handle_, *calls, replays_);
    }
    issued(op, calls->size());
  });
}

template <typename Work>
void CudaStream::give(bool timed, Work work) {
  if (!timed) return work();
  Timed& noted = timed_work_.emplace_back(run_.events(), *this);
  noted.begin.record(handle_);
  work();
  noted.end.record(handle_);
  steps_ += 2;
}

void CudaStream::time_work(bool on) {
  flush();
  timed_ = on;
}

double CudaStream::take_work_seconds() {
  double seconds = 0;
  for (const Timed& noted : timed_work_) seconds += noted.end.seconds() - noted.begin.seconds();
  timed_work_.clear();
  return seconds;
}

IssueQueue& CudaStream::queue() {
  flush();
  return *queue_;
}

void CudaStream::when_passed(std::function<void()> then) { then_.push_back(std::move(then)); }

void CudaStream::issued(std::optional<uint32_t> op) { issued(op, 1); }

void CudaStream::issued(std::optional<uint32_t> op, size_t steps) {
  steps_ += steps;
  if (then_.empty() && steps_ - marked_steps_ < kStepsPerMark) return;
  auto event = std::make_shared<CudaEvent>(run_.events(), *this);
  event->record(handle_);
  mark(std::move(event), op);
}

void CudaStream::mark(std::shared_ptr<CudaEvent> event, std::optional<uint32_t> op) {
  marks_.push_back({std::move(event), op, run_.marks_++, steps_, std::exchange(then_, {})});
  marked_steps_ = steps_;
}

void CudaStream::sweep() {
  while (!marks_.empty() && !run_.guard.failed()) {
    const Mark& first = marks_.front();
    bool passed = false;
    try {
      if (!first.event->passed()) return;
      passed = true;
      for (const auto& then : first.then) then();
    } catch (const std::exception& error) {
      // A GPU that failed, at whatever work of whichever stream, answers nothing else from then on.
      return run_.guard.fail(run_.where(rank_, name_, first.op) + (passed ? ": " : ", or later: ") +
                             error.what());
    }
    passed_steps_ = first.steps;
    marks_.pop_front();
    run_.guard.progress();
  }
}

bool CudaStream::has_room() {
  if (steps_ - passed_steps_ >= kAhead) {
    run_.make_current();
    sweep();
  }
  return steps_ - passed_steps_ < kAhead;
}

// The destructor calls it, when no other class's record() is there any more.
void CudaStream::synchronize() { synchronize(CudaStream::record()); }

void CudaStream::synchronize(const EventRef& event) {
  const auto awaited = std::dynamic_pointer_cast<CudaEvent>(event);
  run_.make_current();
  run_.order.wait_for(rank_, "for " + name_, *awaited, [&] {
    run_.sweep_now_and_then();
    sweep();  // names the place where the GPU has failed
    if (run_.guard.failed() || !awaited->passed()) return false;
    sweep();
    return true;
  });
}

CudaStream& cuda_stream(Stream& stream) {
  auto* ours = dynamic_cast<CudaStream*>(&stream);
  if (ours == nullptr) throw std::logic_error("the stream is of another backend");
  return *ours;
}

}  // namespace stp::cuda
