// What all devices, streams and groups of one CUDA backend share: one GPU, which one thread gives work to,
// for the ranks that its process drives.
//
// That thread also watches the GPU. It never waits inside a call of CUDA, but in wait_until(), which asks
// again and again what the GPU is done with: so whatever gets stuck, there or in another process, ends the
// run at its deadline.
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

/// Makes the GPU of that number the calling thread's current device. Nothing else calls cudaSetDevice: the
/// thread remembers what it set. Throws CudaError.
void set_current_gpu(int gpu);

class CudaRun : public RunContext {
 public:
  /// `progress`: of the run's processes, where there are several. Throws CudaError.
  CudaRun(double deadline_s, int gpu, Progress* progress = nullptr);
  CudaRun(const CudaRun&) = delete;
  CudaRun& operator=(const CudaRun&) = delete;
  ~CudaRun();

  void make_current() const { set_current_gpu(gpu_); }
  [[nodiscard]] int gpu() const { return gpu_; }

  /// Returns when `ready()`, which is asked until then. Throws Cancelled if the run fails meanwhile, or has
  /// failed. Fails it if nothing moves for `patience` deadlines: "rank 0, compute, F0.1 is not done; `who`".
  void wait_until(const std::function<bool()>& ready, const std::function<std::string()>& who,
                  double patience = 1);
  /// `look` is called while this thread waits: for what else may fail. Null: nothing.
  void while_waiting(std::function<void()> look) { look_ = std::move(look); }

  /// The streams that are alive, of all ranks.
  [[nodiscard]] std::vector<CudaStream*>& streams() { return streams_; }
  /// Marks are numbered over all streams, in the order of issue.
  uint64_t next_mark() { return marks_++; }
  /// A stream ended before the GPU had done its work, or the GPU has failed: then it is unknown when the GPU
  /// is done with memory, which goes with the process.
  void leave_at_work() { left_at_work_ = true; }
  [[nodiscard]] bool left_at_work() const { return left_at_work_; }

  [[nodiscard]] const std::shared_ptr<CudaEvents>& events() const { return events_; }
  /// To be called now and then, with no op under way: events are timed the better.
  void renew_clock();
  /// Carries work that waits for no op: allocations of device memory, and the clock's events.
  [[nodiscard]] cudaStream_t side_stream() const { return side_stream_; }

  /// Memory of the host, at the same address for kernels, which ends with the run. Throws CudaError.
  [[nodiscard]] void* pinned(size_t bytes);
  /// Frees it before the run ends, once the GPU is done with all work.
  void unpin(void* block);

  /// Where a kernel writes a number to fail the run with `text`, and which. The number holds until
  /// forget_alarms().
  std::pair<int32_t*, int32_t> alarm(std::string text);
  /// To be called where no kernel waits for its launch: forgets all alarms if the GPU is done with all work.
  void forget_alarms();

  /// What the host does from here on is shown as this op's where a profiler is attached.
  void show_op(int rank, std::optional<uint32_t> op);

 private:
  void sweep();
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
  std::vector<std::string> alarms_;  // by mark, from 1; of all kernels that may still write it
  std::optional<uint32_t> shown_op_;
};

}  // namespace stp::cuda
