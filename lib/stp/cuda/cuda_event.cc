#include "stp/cuda/cuda_event.h"

#include <stdexcept>

#include "stp/cuda/cuda_check.h"

namespace stp::cuda {
namespace {

/// Float milliseconds are exact to 0.5 µs up to twice this.
constexpr std::chrono::seconds kEpoch{4};

bool is_done(cudaError_t state, const char* call, int line) {
  if (state == cudaErrorNotReady) {
    static_cast<void>(cudaGetLastError());  // not ready is no error, but the runtime keeps it as one
    return false;
  }
  check_call(state, cuda_error_text, call, __FILE__, line);
  return true;
}

double seconds_between(cudaEvent_t from, cudaEvent_t to) {
  float milliseconds = 0;
  if (!is_done(cudaEventElapsedTime(&milliseconds, from, to), "cudaEventElapsedTime", __LINE__))
    throw std::logic_error("the stream has not passed the event yet");
  return double{milliseconds} / 1e3;
}

}  // namespace

bool has_passed(cudaEvent_t event) { return is_done(cudaEventQuery(event), "cudaEventQuery", __LINE__); }

bool is_idle(cudaStream_t stream) { return is_done(cudaStreamQuery(stream), "cudaStreamQuery", __LINE__); }

CudaEvents::~CudaEvents() {
  for (const Epoch& epoch : epochs_) cudaEventDestroy(epoch.event);
  for (const cudaEvent_t event : free_) cudaEventDestroy(event);
}

cudaEvent_t CudaEvents::take() {
  if (!free_.empty()) {
    const cudaEvent_t event = free_.back();
    free_.pop_back();
    return event;
  }
  cudaEvent_t event = nullptr;
  STP_CUDA(cudaEventCreateWithFlags(&event, cudaEventDefault));
  return event;
}

bool CudaEvents::wants_epoch() const {
  return epochs_.empty() || std::chrono::steady_clock::now() >= next_epoch_;
}

void CudaEvents::add_epoch(cudaEvent_t event) {
  epochs_.push_back({event, epochs_.empty() ? 0 : seconds(event, latest_epoch())});
  next_epoch_ = std::chrono::steady_clock::now() + kEpoch;
}

double CudaEvents::seconds(cudaEvent_t event, size_t epoch) const {
  return epochs_[epoch].seconds + seconds_between(epochs_[epoch].event, event);
}

CudaEvent::~CudaEvent() {
  if (handle_ != nullptr) events_->give_back(handle_);  // a new record does not change earlier waits
}

double CudaEvent::seconds() const {
  if (handle_ == nullptr) throw std::logic_error("the stream has not passed the event yet");
  return events_->seconds(handle_, epoch_);
}

void CudaEvent::record(cudaStream_t stream) {
  handle_ = events_->take();
  epoch_ = events_->latest_epoch();
  STP_CUDA(cudaEventRecord(handle_, stream));
}

}  // namespace stp::cuda
