// Events of the CUDA backend, and the clock that they are read on.
#pragma once

#include <cuda_runtime_api.h>

#include <chrono>
#include <memory>
#include <mutex>
#include <vector>

#include "stp/cuda/epoch_clock.h"
#include "stp/cuda/issue_order.h"
#include "stp/device/device.h"

namespace stp::cuda {

/// The events of one GPU: kept for further use, all with timing, and with one clock. Threads may call it at
/// once. Events hold it, so it may outlive the backend; the GPU is the caller's current device.
class CudaEvents {
 public:
  CudaEvents();
  CudaEvents(const CudaEvents&) = delete;
  CudaEvents& operator=(const CudaEvents&) = delete;
  ~CudaEvents();

  cudaEvent_t take();
  void give_back(cudaEvent_t event);

  /// Starts a new epoch if it is time. Returns the epoch that an event which is recorded now lies in.
  size_t tick();
  /// Seconds since this was made when the GPU passed `event`, which was recorded in `epoch`.
  double seconds(cudaEvent_t event, size_t epoch);

 private:
  std::mutex mutex_;
  std::vector<cudaEvent_t> free_;
  cudaStream_t stream_ = nullptr;  // of the epochs: otherwise idle
  EpochClock<cudaEvent_t> clock_;
  cudaEvent_t next_epoch_ = nullptr;  // recorded, and not passed when last asked
  std::chrono::steady_clock::time_point next_tick_;
};

/// Whether the GPU has passed `event`. The runtime keeps no error where it has not. Throws CudaError.
bool has_passed(cudaEvent_t event);

class CudaStream;

class CudaEvent : public Event, public IssuePoint {
 public:
  CudaEvent(std::shared_ptr<CudaEvents> events, const CudaStream& stream)
      : events_(std::move(events)), stream_(&stream) {}
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;
  ~CudaEvent() override;

  [[nodiscard]] double seconds() const override;

  // For work that is being issued, and for who knows that the event is.
  void record(cudaStream_t stream);
  [[nodiscard]] bool passed() const;
  [[nodiscard]] cudaEvent_t handle() const { return handle_; }
  [[nodiscard]] bool of(const CudaStream& stream) const { return stream_ == &stream; }

 private:
  const std::shared_ptr<CudaEvents> events_;
  const CudaStream* const stream_;  // for comparison: it may be gone
  cudaEvent_t handle_ = nullptr;    // once it is recorded
  size_t epoch_ = 0;
};

}  // namespace stp::cuda
