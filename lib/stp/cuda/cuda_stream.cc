#include "stp/cuda/cuda_stream.h"

#include <algorithm>
#include <exception>
#include <stdexcept>
#include <utility>

#include "stp/cuda/cuda_check.h"
#include "stp/cuda/cuda_device.h"

namespace stp::cuda {
namespace {

/// Calls that a stream may be ahead of the GPU. The GPU's own queue holds about 1024 kernels and copies; if
/// it is full, the call blocks the host.
constexpr uint64_t kAhead = 256;
/// Largest number of calls between two marks.
constexpr uint64_t kCallsPerMark = 32;
/// Largest number of kernels in a graph: more would delay the GPU.
constexpr size_t kMostCollected = 64;

}  // namespace

CudaStream::CudaStream(CudaDevice& device, std::string name, StreamPriority priority)
    : Stream(device.rank()), device_(device), name_(std::move(name)) {
  device_.run().make_current();
  int lowest = 0, highest = 0;
  STP_CUDA(cudaDeviceGetStreamPriorityRange(&lowest, &highest));
  STP_CUDA(cudaStreamCreateWithPriority(&handle_, cudaStreamNonBlocking,
                                        priority == StreamPriority::compute ? lowest : highest));
  device_.run().streams().push_back(this);
}

CudaStream::~CudaStream() {
  CudaRun& run = device_.run();
  try {
    synchronize();
  } catch (const std::exception&) {
    // The run has failed, and its owner knows that.
  }
  std::erase(run.streams(), this);
  if (cudaStreamQuery(handle_) != cudaSuccess) {
    static_cast<void>(cudaGetLastError());  // the failure of the run is known
    run.leave_at_work();
  }
  device_.forget(*this);
  cudaStreamDestroy(handle_);  // does not wait
}

std::string CudaStream::where() const { return device_.run().where(device_.rank(), name_, op_); }

std::string CudaStream::where(const Mark& mark) const {
  return device_.run().where(device_.rank(), name_, mark.op) + (mark.words.empty() ? "" : ", " + mark.words);
}

std::shared_ptr<CudaEvent> CudaStream::make_event() {
  auto event = std::make_shared<CudaEvent>(device_.run().events(), *this);
  note_record(*event);
  return event;
}

bool CudaStream::ready() {
  CudaRun& run = device_.run();
  if (run.guard.failed()) return false;
  run.make_current();
  if (given_ - passed_ < kAhead) return true;
  try {
    run.wait_until([this] { return given_ - passed_ < kAhead; },
                   [this] { return where() + ": the host waits until the GPU takes more work"; });
  } catch (const Cancelled&) {
    return false;
  }
  return true;
}

void CudaStream::begin(uint32_t op) {
  if (op == op_) return;
  flush();
  op_ = op;
  device_.run().show_op(device_.rank(), op);
}

void CudaStream::give(const std::function<void(cudaStream_t)>& work, std::string words) {
  flush();
  if (!ready()) return;
  work(handle_);
  note_given(std::move(words));
}

void CudaStream::note_given(std::string words) {
  ++given_;
  if (!words.empty() || given_ - marked_ >= kCallsPerMark) mark(make_event(), std::move(words));
}

bool CudaStream::has_graphs() const { return device_.has_graphs(); }

void CudaStream::collect(GraphCall call) {
  collected_.push_back(std::move(call));
  if (collected_.size() >= kMostCollected) flush();
}

void CudaStream::give_timed(const std::function<void(cudaStream_t)>& launch) {
  const Timed& timed = timed_kernels_.emplace_back(Timed{make_event(), make_event()});
  give([&](cudaStream_t stream) {
    timed.begin->record(stream);
    launch(stream);
    timed.end->record(stream);
    given_ += 2;
  });
}

// The collected calls belong to the op that is being issued, so an error names that op. The call that
// triggers the flush may belong to the next op.
void CudaStream::flush() {
  if (collected_.empty()) return;
  const std::vector<GraphCall> calls = std::exchange(collected_, {});
  const std::shared_ptr<CudaEvent> behind = std::exchange(behind_collected_, nullptr);
  if (!ready()) return;
  try {
    graphs_.launch(handle_, calls);
    given_ += calls.size();
    if (behind || given_ - marked_ >= kCallsPerMark) mark(behind ? behind : make_event(), "");
  } catch (const std::exception& error) {
    device_.run().guard.fail(where() + ": " + error.what());
  }
}

// An error here or in wait() fails the run but throws nothing: destructors that release memory call both.
EventRef CudaStream::record() {
  if (!collected_.empty()) {
    if (!behind_collected_) behind_collected_ = make_event();
    return behind_collected_;
  }
  auto event = make_event();
  try {
    if (ready()) mark(event, "");
  } catch (const std::exception& error) {
    device_.run().guard.fail(where() + ": " + error.what());
  }
  return event;
}

EventRef CudaStream::fence() {
  return collected_.empty() && latest_ && marked_ == given_ ? latest_ : record();
}

void CudaStream::mark(std::shared_ptr<CudaEvent> event, std::string words) {
  event->record(handle_);
  marked_ = ++given_;
  latest_ = event;
  marks_.push_back({std::move(event), op_, std::move(words), device_.run().next_mark(), given_});
}

void CudaStream::wait(const EventRef& event) {
  const auto awaited = std::dynamic_pointer_cast<CudaEvent>(event);
  if (!awaited) throw std::logic_error("a stream cannot wait for an event of another backend");
  note_wait(*event);
  if (device_.run().guard.failed() || &awaited->stream() == this) return;
  if (awaited->handle() == nullptr) awaited->stream().flush();
  flush();
  if (!ready() || awaited->handle() == nullptr) return;
  try {
    STP_CUDA(cudaStreamWaitEvent(handle_, awaited->handle(), 0));
    note_given("");  // with marks: a block waits for all its sends in a row
  } catch (const std::exception& error) {
    device_.run().guard.fail(where() + ": " + error.what());
  }
}

void CudaStream::sweep() {
  while (!marks_.empty()) {
    const Mark& first = marks_.front();
    try {
      if (!first.event->passed()) return;
    } catch (const std::exception& error) {
      // Once a GPU has failed, on any stream, every later call returns the same error.
      return device_.run().guard.fail(where(first) + ", or later: " + error.what());
    }
    passed_ = first.given;
    marks_.pop_front();
    device_.run().guard.progress();
  }
}

// The destructor calls it after a derived class's record() has ended, so it names its own record().
void CudaStream::synchronize() {
  flush();
  if (marked_ < given_) CudaStream::record();
  device_.run().wait_until(
      [this] { return marks_.empty(); },
      [this] { return "rank " + std::to_string(device_.rank()) + ", host, waits for " + name_; });
  op_.reset();
  device_.run().show_op(device_.rank(), std::nullopt);
}

void CudaStream::time_kernels(bool on) {
  flush();
  timed_ = on;
  if (!on) return;
  empty_ = {make_event(), make_event()};
  give([&](cudaStream_t stream) {
    empty_.begin->record(stream);
    empty_.end->record(stream);
    ++given_;
  });
}

double CudaStream::take_kernel_seconds() {
  const auto taken = [](const Timed& timed) { return timed.end->seconds() - timed.begin->seconds(); };
  double seconds = 0;
  for (const Timed& timed : timed_kernels_) seconds += std::max(0.0, taken(timed) - taken(empty_));
  timed_kernels_.clear();
  return seconds;
}

CudaStream& cuda_stream(Stream& stream) {
  auto* ours = dynamic_cast<CudaStream*>(&stream);
  if (ours == nullptr) throw std::logic_error("the stream is of another backend");
  return *ours;
}

}  // namespace stp::cuda
