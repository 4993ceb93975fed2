// Events of the CUDA backend, and the clock that they are read on.
#pragma once

#include <cuda_runtime_api.h>

#include <chrono>
#include <memory>
#include <vector>

#include "stp/device/stream.h"

namespace stp::cuda {

/// The events of one GPU, which are kept for further use, and their clock. CUDA measures between two events
/// in float milliseconds, which lose a microsecond from 8 s on; so an epoch is added every few seconds, and
/// the time of an event is that of the latest epoch before its record, and what CUDA measures from there.
class CudaEvents {
 public:
  CudaEvents() = default;
  CudaEvents(const CudaEvents&) = delete;
  CudaEvents& operator=(const CudaEvents&) = delete;
  ~CudaEvents();

  /// With timing. The GPU is the caller's current device.
  cudaEvent_t take();
  void give_back(cudaEvent_t event) { free_.push_back(event); }

  [[nodiscard]] bool wants_epoch() const;
  /// The GPU has passed `event`, which is the epochs' own from here on. The first one is second 0.
  void add_epoch(cudaEvent_t event);
  [[nodiscard]] size_t latest_epoch() const { return epochs_.size() - 1; }
  /// When the GPU passed `event`, which was recorded in that epoch.
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

/// Whether the GPU has passed `event`, or has done all that `stream` was given. The runtime keeps no error
/// where it has not. Throw CudaError.
bool has_passed(cudaEvent_t event);
bool is_idle(cudaStream_t stream);

class CudaStream;

class CudaEvent : public Event {
 public:
  /// Of `stream`; not recorded yet.
  CudaEvent(std::shared_ptr<CudaEvents> events, CudaStream& stream)
      : events_(std::move(events)), stream_(stream) {}
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;
  ~CudaEvent() override;

  [[nodiscard]] double seconds() const override;

  void record(cudaStream_t stream);
  [[nodiscard]] bool passed() const { return handle_ != nullptr && has_passed(handle_); }
  /// Null while it is not recorded: the stream collects a graph (graphs.h), or the run has failed.
  [[nodiscard]] cudaEvent_t handle() const { return handle_; }
  /// May be gone once the event is recorded, or the run has failed.
  [[nodiscard]] CudaStream& stream() const { return stream_; }

 private:
  const std::shared_ptr<CudaEvents> events_;  // which an event keeps alive
  CudaStream& stream_;
  cudaEvent_t handle_ = nullptr;
  size_t epoch_ = 0;
};

}  // namespace stp::cuda
