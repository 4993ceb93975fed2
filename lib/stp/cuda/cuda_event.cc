#include "stp/cuda/cuda_event.h"

#include <stdexcept>

#include "stp/cuda/cuda_check.h"

namespace stp::cuda {
namespace {

/// Between epochs: float milliseconds are exact to 0.5 µs up to twice this.
constexpr std::chrono::seconds kEpoch{4};

double seconds_between(cudaEvent_t from, cudaEvent_t to) {
  float milliseconds = 0;
  const cudaError_t state = cudaEventElapsedTime(&milliseconds, from, to);
  if (state == cudaErrorNotReady) {
    static_cast<void>(cudaGetLastError());
    throw std::logic_error("the stream has not passed the event yet");
  }
  check_call(state, cuda_error_text, "cudaEventElapsedTime", __FILE__, __LINE__);
  return double{milliseconds} / 1e3;
}

}  // namespace

bool has_passed(cudaEvent_t event) {
  const cudaError_t state = cudaEventQuery(event);
  if (state == cudaErrorNotReady) {
    static_cast<void>(cudaGetLastError());  // no error, but kept as one
    return false;
  }
  check_call(state, cuda_error_text, "cudaEventQuery", __FILE__, __LINE__);
  return true;
}

CudaEvents::CudaEvents() {
  STP_CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
  const cudaEvent_t first = take();
  STP_CUDA(cudaEventRecord(first, stream_));
  STP_CUDA(cudaEventSynchronize(first));
  clock_.add(first, seconds_between);
  next_tick_ = std::chrono::steady_clock::now() + kEpoch;
}

CudaEvents::~CudaEvents() {
  clock_.for_each([](cudaEvent_t event) { cudaEventDestroy(event); });
  if (next_epoch_ != nullptr) cudaEventDestroy(next_epoch_);
  for (const cudaEvent_t event : free_) cudaEventDestroy(event);
  if (stream_ != nullptr) cudaStreamDestroy(stream_);
}

cudaEvent_t CudaEvents::take() {
  {
    const std::lock_guard lock(mutex_);
    if (!free_.empty()) {
      const cudaEvent_t event = free_.back();
      free_.pop_back();
      return event;
    }
  }
  cudaEvent_t event = nullptr;
  STP_CUDA(cudaEventCreateWithFlags(&event, cudaEventDefault));
  return event;
}

void CudaEvents::give_back(cudaEvent_t event) {
  const std::lock_guard lock(mutex_);
  free_.push_back(event);
}

size_t CudaEvents::tick() {
  const auto now = std::chrono::steady_clock::now();
  const std::lock_guard lock(mutex_);
  if (next_epoch_ != nullptr && has_passed(next_epoch_)) {
    clock_.add(next_epoch_, seconds_between);
    next_epoch_ = nullptr;
  }
  if (next_epoch_ == nullptr && now >= next_tick_) {
    next_tick_ = now + kEpoch;
    STP_CUDA(cudaEventCreateWithFlags(&next_epoch_, cudaEventDefault));
    STP_CUDA(cudaEventRecord(next_epoch_, stream_));
  }
  return clock_.latest();
}

double CudaEvents::seconds(cudaEvent_t event, size_t epoch) {
  const std::lock_guard lock(mutex_);
  return clock_.seconds(event, epoch, seconds_between);
}

CudaEvent::~CudaEvent() {
  if (handle_ != nullptr) events_->give_back(handle_);
}

double CudaEvent::seconds() const {
  if (handle_ == nullptr) throw std::logic_error("the stream has not passed the event yet");
  return events_->seconds(handle_, epoch_);
}

void CudaEvent::record(cudaStream_t stream) {
  handle_ = events_->take();
  epoch_ = events_->tick();
  STP_CUDA(cudaEventRecord(handle_, stream));
}

bool CudaEvent::passed() const { return handle_ != nullptr && has_passed(handle_); }

}  // namespace stp::cuda
