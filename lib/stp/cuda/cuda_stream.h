// Streams of the CUDA backend.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "stp/cuda/cuda_event.h"
#include "stp/cuda/graphs.h"
#include "stp/device/stream.h"

namespace stp::cuda {

class CudaDevice;

/// Gives work to a stream of the GPU at the call, never more than the GPU takes at once: a host that is
/// further ahead waits, with the run's deadline. If CUDA refuses the work, the call throws CudaError. After a
/// failure of the run, the GPU gets no more work.
///
/// With graphs, the stream collects consecutive kernels of one op. It gives them as one graph before anything
/// else that it is asked. An event recorded in between comes after all collected kernels.
class CudaStream : public Stream {
 public:
  /// `device` must outlive the stream.
  CudaStream(CudaDevice& device, std::string name, StreamPriority priority);
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;
  /// Waits until the GPU has finished all work, or the run has failed.
  ~CudaStream() override;

  EventRef record() override;
  EventRef fence() override;
  void wait(const EventRef& event) override;
  void begin(uint32_t op) override;

  /// Calls `launch` with the stream, to which `launch` gives one kernel: now, or with graphs later. Captured
  /// arguments must still exist then. `kernel` and what `arguments` returns: as in GraphCall.
  template <typename Arguments, typename Launch>
  void launch(const void* kernel, const Arguments& arguments, const Launch& launch) {
    if (timed_ && op_) return give_timed(std::cref(launch));
    if (has_graphs()) return collect({kernel, arguments(), launch});
    if (!ready()) return;
    launch(handle_);
    note_given("");
  }
  /// The same for work that can be in no graph.
  void launch(const std::function<void(cudaStream_t)>& work) { timed_&& op_ ? give_timed(work) : give(work); }
  /// Calls `work` now, which gives the stream a kernel or a copy. `words` name it, in case the GPU does not
  /// finish it.
  void give(const std::function<void(cudaStream_t)>& work, std::string words = "");
  /// Gives the GPU what was collected.
  void flush();
  /// Waits until the GPU has finished all work of this stream. Later work belongs to no op until begin().
  /// Throws Cancelled if the run has failed.
  void synchronize();

  /// Switches the timing of kernels, by an event before and after each. Timed kernels are in no graph.
  void time_kernels(bool on);
  /// Total seconds of the timed kernels of ops since the last call, less the events' own time (of two
  /// with nothing between). Call after synchronize().
  double take_kernel_seconds();

  /// "rank 3, compute, F0.1": this stream and its current op.
  [[nodiscard]] std::string where() const;
  [[nodiscard]] CudaDevice& device() const { return device_; }
  [[nodiscard]] const GraphCounts& graphs() const { return graphs_.counts(); }
  [[nodiscard]] cudaStream_t handle() const { return handle_; }

  // For the run, which watches its streams.

  /// A place in the stream's work that the GPU may not have passed yet.
  struct Mark {
    std::shared_ptr<CudaEvent> event;
    std::optional<uint32_t> op;
    std::string words;
    uint64_t number;  // over all streams, in the order of issue
    uint64_t given;   // to this stream before it
  };
  /// Forgets the marks that the GPU has passed. Fails the run if the GPU has failed.
  void sweep();
  [[nodiscard]] bool idle() const { return given_ == passed_ && collected_.empty(); }
  [[nodiscard]] const Mark* first_mark() const { return marks_.empty() ? nullptr : &marks_.front(); }
  /// "rank 3, compute, F0.1"
  [[nodiscard]] std::string where(const Mark& mark) const;

 private:
  struct Timed {
    std::shared_ptr<CudaEvent> begin, end;
  };

  [[nodiscard]] bool has_graphs() const;
  void collect(GraphCall call);
  void give_timed(const std::function<void(cudaStream_t)>& launch);
  /// Whether the GPU takes more work. False after the run has failed.
  bool ready();
  void note_given(std::string words);
  void mark(std::shared_ptr<CudaEvent> event, std::string words);
  [[nodiscard]] std::shared_ptr<CudaEvent> make_event();

  CudaDevice& device_;
  const std::string name_;
  cudaStream_t handle_ = nullptr;
  std::optional<uint32_t> op_;
  uint64_t given_ = 0, marked_ = 0, passed_ = 0;  // calls: all, until the last mark, and passed
  std::deque<Mark> marks_;
  std::shared_ptr<CudaEvent> latest_;  // the event after all work, if there is one

  Graphs graphs_;
  std::vector<GraphCall> collected_;
  std::shared_ptr<CudaEvent> behind_collected_;  // where it was asked for

  bool timed_ = false;
  std::vector<Timed> timed_kernels_;
  Timed empty_;  // around nothing
};

/// Throws std::logic_error if `stream` belongs to another backend.
CudaStream& cuda_stream(Stream& stream);

}  // namespace stp::cuda
