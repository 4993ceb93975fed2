// Events of the CUDA backend, and their clock.
#pragma once

#include <cuda_runtime_api.h>

#include <chrono>
#include <memory>
#include <vector>

#include "stp/device/stream.h"

namespace stp::cuda {

/// The events of one GPU, kept for reuse, and their clock. CUDA measures the time between two events in float
/// milliseconds, which lose a microsecond from 8 s on. So an epoch is added every few seconds. The time of an
/// event is the time of the latest epoch before its record, plus CUDA's measurement from there.
class CudaEvents {
 public:
  CudaEvents() = default;
  CudaEvents(const CudaEvents&) = delete;
  CudaEvents& operator=(const CudaEvents&) = delete;
  ~CudaEvents();

  /// Returns an event with timing. The GPU must be the caller's current device.
  cudaEvent_t take();
  void give_back(cudaEvent_t event) { free_.push_back(event); }

  [[nodiscard]] bool wants_epoch() const;
  /// Adds `event`, which the GPU has passed, as an epoch and keeps it. The first epoch is second 0.
  void add_epoch(cudaEvent_t event);
  [[nodiscard]] size_t latest_epoch() const { return epochs_.size() - 1; }
  /// The time when the GPU passed `event`, which was recorded in `epoch`.
  [[nodiscard]] double seconds(cudaEvent_t event, size_t epoch) const;

 private:
  struct Epoch {
    cudaEvent_t event;
    double seconds;
  };

  std::vector<cudaEvent_t> free_;
  std::vector<Epoch> epochs_;
  std::chrono::steady_clock::time_point next_epoch_;
};

/// Whether the GPU has passed `event`, or has finished all work of `stream`. If not, the runtime keeps no
/// error. Throw CudaError.
bool has_passed(cudaEvent_t event);
bool is_idle(cudaStream_t stream);

class CudaStream;

class CudaEvent : public Event {
 public:
  /// Makes an event of `stream` that is not recorded yet.
  CudaEvent(std::shared_ptr<CudaEvents> events, CudaStream& stream)
      : events_(std::move(events)), stream_(stream) {}
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;
  ~CudaEvent() override;

  [[nodiscard]] double seconds() const override;

  void record(cudaStream_t stream);
  [[nodiscard]] bool passed() const { return handle_ != nullptr && has_passed(handle_); }
  /// Null until it is recorded: while the stream collects a graph (graphs.h), or after the run has failed.
  [[nodiscard]] cudaEvent_t handle() const { return handle_; }
  /// The stream may have ended once the event is recorded or the run has failed.
  [[nodiscard]] CudaStream& stream() const { return stream_; }

 private:
  const std::shared_ptr<CudaEvents> events_;  // this event keeps it alive
  CudaStream& stream_;
  cudaEvent_t handle_ = nullptr;
  size_t epoch_ = 0;
};

}  // namespace stp::cuda
