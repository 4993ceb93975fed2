// Streams of the CUDA backend: a queue on the host (lib/stp/cuda/issue_order.h) before a stream of the GPU.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "stp/cuda/cuda_run.h"
#include "stp/cuda/graph_cache.h"
#include "stp/cuda/issue_order.h"
#include "stp/cuda/repeatable_call.h"
#include "stp/device/device.h"

namespace stp::cuda {

/// Work that throws when it is issued fails the run ("rank 3, compute, F0.1: …"), and so does work on which
/// the GPU fails or gets stuck; once the run has failed, by whatever, no stream issues anything more. The
/// host is never more than a few hundred calls ahead of the GPU, which would otherwise block it beyond any
/// deadline.
class CudaStream : public Stream {
 public:
  /// `run` outlives the stream. `graphs`: what comes again is replayed (graph_cache.h).
  CudaStream(CudaRun& run, int rank, std::string name, StreamPriority priority, bool graphs);
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;
  /// Ends when the GPU is done with all, or the run has failed.
  ~CudaStream() override;

  EventRef record() override;
  void wait(const EventRef& event) override;
  void begin(uint32_t op) override;

  /// `work` calls CUDA with the stream that it is given, some time, on any thread whose current device is
  /// this stream's; tensors have their data then (cuda_memory.h). It does not wait, and gives the GPU a few
  /// kernels or copies at the most. What it needs is copied into it; shapes are checked before, at the call.
  void enqueue(std::function<void(cudaStream_t)> work);
  /// Likewise. Calls of one op that follow each other are issued together, at the latest when anything else
  /// is asked of the stream.
  void enqueue(std::unique_ptr<RepeatableCall> call);
  /// Only from work that is being issued on this stream: `then` is called, by any host thread, when the GPU
  /// is done with what was issued so far, and at the latest before the next synchronisation ends. What it
  /// throws fails the run.
  void when_passed(std::function<void()> then);

  /// Whether work given from now on is timed, each call of enqueue() by events around it; it is not replayed
  /// then.
  void time_work(bool on);
  /// Seconds of the work that was timed since this was last asked, added up. After a synchronisation.
  double take_work_seconds();

  /// Waits until the GPU is done with all work given so far. Throws Cancelled if the run has failed.
  void synchronize();
  void synchronize(const EventRef& event);

  // For communicators that issue on several streams at once.
  /// With all that was given before.
  IssueQueue& queue();
  /// The op that work is given for now.
  [[nodiscard]] std::optional<uint32_t> op() const { return op_; }
  /// To be called where a joint step was issued, for each stream that took part in it.
  void issued(std::optional<uint32_t> op);

  /// After a synchronisation.
  [[nodiscard]] const GraphCounts& graphs() const { return graphs_.counts(); }
  [[nodiscard]] cudaStream_t handle() const { return handle_; }
  [[nodiscard]] CudaRun& run() const { return run_; }
  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] const std::string& name() const { return name_; }

 private:
  friend class CudaRun;
  /// A place in the stream's work that the GPU has not passed, as far as is known.
  struct Mark {
    std::shared_ptr<CudaEvent> event;
    std::optional<uint32_t> op;
    uint64_t number;  // over all streams, in the order of issue
    uint64_t steps;   // issued on this stream before it
    std::vector<std::function<void()>> then;
  };

  void flush();
  /// Calls `work`, which gives the GPU something, and notes its time if it is `timed`.
  template <typename Work>
  void give(bool timed, Work work);
  void issued(std::optional<uint32_t> op, size_t steps);
  void mark(std::shared_ptr<CudaEvent> event, std::optional<uint32_t> op);
  /// Forgets the marks that the GPU has passed.
  void sweep();
  bool has_room();

  CudaRun& run_;
  const int rank_;
  const std::string name_;
  const bool replays_;
  cudaStream_t handle_ = nullptr;
  // Of the host thread.
  std::optional<uint32_t> op_;
  Calls calls_;  // of op_, and not pushed yet
  bool timed_ = false;

  // Guarded by the order's mutex.
  GraphCache graphs_;
  struct Timed {
    Timed(const std::shared_ptr<CudaEvents>& events, const CudaStream& stream)
        : begin(events, stream), end(events, stream) {}
    CudaEvent begin, end;
  };
  std::deque<Timed> timed_work_;
  std::deque<Mark> marks_;
  std::vector<std::function<void()>> then_;  // for the next mark
  uint64_t steps_ = 0, marked_steps_ = 0, passed_steps_ = 0;

  std::unique_ptr<IssueQueue> queue_;  // last: it uses all others
};

/// Throws std::logic_error if `stream` is not of the CUDA backend.
CudaStream& cuda_stream(Stream& stream);

}  // namespace stp::cuda
