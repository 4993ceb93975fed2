// What all devices, streams and communicators of one CUDA backend share: one GPU, driven by the ranks of this
// process.
#pragma once

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "stp/cuda/cuda_event.h"
#include "stp/cuda/graph_cache.h"
#include "stp/cuda/issue_order.h"
#include "stp/device/run_context.h"

namespace stp::cuda {

class CudaStream;

/// Makes the GPU of that number the calling thread's current device. Nobody else calls cudaSetDevice: the
/// thread remembers what it set. Throws CudaError.
void set_current_gpu(int gpu);

class CudaRun : public RunContext, private IssueDevice {
 public:
  /// `ranks`: how many this process drives; `gpu`: their device's number. Throws CudaError.
  CudaRun(double deadline_s, int ranks, int gpu);
  /// Of a run that is more than this process's ranks; `of_run` outlives this.
  CudaRun(RunGuard& of_run, int ranks, int gpu);
  CudaRun(const CudaRun&) = delete;
  CudaRun& operator=(const CudaRun&) = delete;
  ~CudaRun() override;

  /// Makes the GPU the calling thread's current device.
  void make_current() const { set_current_gpu(gpu_); }
  [[nodiscard]] int gpu() const { return gpu_; }
  [[nodiscard]] const std::shared_ptr<CudaEvents>& events() const { return events_; }
  /// Those that are alive; for the host of `rank`, which alone makes and ends them.
  [[nodiscard]] std::vector<CudaStream*> streams_of(int rank);
  /// Of a rank's streams, those that ended too. After they were synchronised.
  [[nodiscard]] GraphCounts graphs(int rank);
  /// Whether a stream ended before the GPU had done its work, or when the GPU had failed.
  [[nodiscard]] bool left_at_work() const { return left_at_work_; }

  /// Memory of the host that stays in its place, for copies and for kernels, at the same address. It ends
  /// with the run; where streams ended at work, with the process, since to free it waits for the GPU. Throws
  /// CudaError.
  [[nodiscard]] void* pinned(size_t bytes);

 private:
  friend class CudaStream;
  void begin(int rank, std::optional<uint32_t> op) override;
  void end() override;
  std::string unfinished() override;
  /// Has all streams forget what the GPU has passed, if that was not done lately. Under the order's mutex.
  void sweep_now_and_then();

  const int gpu_;
  std::shared_ptr<CudaEvents> events_;
  std::atomic<bool> left_at_work_ = false;
  std::mutex streams_mutex_;
  std::vector<CudaStream*> streams_;
  std::map<int, GraphCounts> ended_graphs_;  // by rank, of streams that ended
  std::mutex pinned_mutex_;
  std::vector<void*> pinned_;
  // Guarded by the order's mutex.
  uint64_t marks_ = 0;
  std::chrono::steady_clock::time_point next_sweep_;

 public:
  IssueOrder order;  // last: its queues use all others
};

}  // namespace stp::cuda
