// The state that all devices, streams and groups of one CUDA backend share. One thread gives one GPU the work
// of its process's ranks.
//
// That thread also watches the GPU. It never waits inside a CUDA call, only in wait_until(), which polls the
// GPU. If anything hangs, on the GPU or in another process, the run ends at its deadline.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "stp/cuda/cuda_event.h"
#include "stp/device/run_context.h"

namespace stp::cuda {

class CudaStream;

/// Makes GPU number `gpu` the calling thread's current device. Only this function calls cudaSetDevice,
/// because the thread remembers the GPU that it set. Throws CudaError.
void set_current_gpu(int gpu);

class CudaRun : public RunContext {
 public:
  /// `progress`: shared by the run's processes, if there are several. Throws CudaError.
  explicit CudaRun(double deadline_s, Progress* progress = nullptr, int gpu = 0);
  CudaRun(const CudaRun&) = delete;
  CudaRun& operator=(const CudaRun&) = delete;
  ~CudaRun();

  void make_current() const { set_current_gpu(gpu_); }
  [[nodiscard]] int gpu() const { return gpu_; }

  /// Polls `ready` until it is true. Throws Cancelled if the run fails or has failed. Fails the run if
  /// nothing moves for `patience` deadlines, and it is not ready once that has a name: "rank 0, compute, F0.1
  /// is not done; `who`".
  void wait_until(const std::function<bool()>& ready, const std::function<std::string()>& who,
                  double patience = 1);
  /// Calls `look` while this thread waits, to find other failures. Null: nothing.
  void while_waiting(std::function<void()> look) { look_ = std::move(look); }

  /// The existing streams of all ranks.
  [[nodiscard]] std::vector<CudaStream*>& streams() { return streams_; }
  /// Numbers marks over all streams, in the order of issue.
  uint64_t next_mark() { return marks_++; }
  /// Called if a stream ends before the GPU has finished its work, or the GPU has failed. It is then unknown
  /// when the GPU stops using memory, so the memory is freed only when the process ends.
  void leave_at_work() { left_at_work_ = true; }
  [[nodiscard]] bool left_at_work() const { return left_at_work_; }

  [[nodiscard]] const std::shared_ptr<CudaEvents>& events() const { return events_; }
  /// Renews the clock's epoch. Call it now and then, with no op under way: events get more exact times.
  void renew_clock();
  /// A stream for work that waits for no op: allocation of device memory, and the clock's events.
  [[nodiscard]] cudaStream_t side_stream() const { return side_stream_; }

  /// Allocates host memory that kernels use at the same address. It ends with the run. Throws CudaError.
  [[nodiscard]] void* pinned(size_t bytes);
  /// Frees `block` before the run ends. The GPU must have finished all work.
  void unpin(void* block);

  /// Returns an address and a number: a kernel that writes the number there fails the run with `text`. The
  /// number is valid until forget_alarms().
  std::pair<int32_t*, int32_t> alarm(std::string text);
  /// Forgets all alarms if the GPU has finished all work. Call it when no kernel waits for its launch.
  void forget_alarms();

  /// Marks the host's work from here on as this op's, for a profiler.
  void show_op(int rank, std::optional<uint32_t> op);

 private:
  void sweep();
  bool drained();
  [[nodiscard]] std::string unfinished() const;

  const int gpu_;
  std::vector<CudaStream*> streams_;
  uint64_t marks_ = 0;
  bool left_at_work_ = false;
  std::shared_ptr<CudaEvents> events_;
  cudaStream_t side_stream_ = nullptr;
  std::vector<void*> pinned_;
  std::function<void()> look_;
  int32_t* alarm_flag_ = nullptr;
  std::vector<std::string> alarms_;  // by number, from 1; kernels may still write these
  std::optional<uint32_t> shown_op_;
};

}  // namespace stp::cuda
