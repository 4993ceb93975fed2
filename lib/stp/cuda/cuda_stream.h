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

/// Gives work to a stream of the GPU at the call, and never more than the GPU takes at once: a host that is
/// further ahead waits, with the run's deadline. What CUDA refuses throws CudaError at the call. Once the run
/// has failed, nothing is given to the GPU any more.
///
/// With graphs, kernels of one op that follow each other are collected, and given as one graph where anything
/// else is asked of the stream. An event that is recorded meanwhile stands behind them all.
class CudaStream : public Stream {
 public:
  /// `device` outlives the stream.
  CudaStream(CudaDevice& device, std::string name, StreamPriority priority);
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;
  /// Ends when the GPU is done with all, or the run has failed.
  ~CudaStream() override;

  EventRef record() override;
  EventRef fence() override;
  void wait(const EventRef& event) override;
  void begin(uint32_t op) override;

  /// Calls `launch` with the stream, which it gives one kernel: now, or with graphs later, when all that it
  /// was given must still be there. `kernel` identifies the kernel.
  void launch(const void* kernel, std::function<void(cudaStream_t)> launch);
  /// Calls `work`, which gives the stream a kernel or a copy, now. `words` say which, where the GPU does not
  /// finish it.
  void give(const std::function<void(cudaStream_t)>& work, std::string words = "");
  /// Waits until the GPU is done with all that was given. What is given from then on is no op's until
  /// begin(). Throws Cancelled if the run has failed.
  void synchronize();

  /// Whether kernels are timed, each by events around it; they are in no graph then.
  void time_kernels(bool on);
  /// Seconds of those that were timed since this was last asked, of ops alone. After synchronize().
  double take_kernel_seconds();

  /// "rank 3, compute, F0.1": this stream, and the op that it is given work for.
  [[nodiscard]] std::string where() const;
  [[nodiscard]] CudaDevice& device() const { return device_; }
  [[nodiscard]] const GraphCounts& graphs() const { return graphs_.counts(); }
  [[nodiscard]] cudaStream_t handle() const { return handle_; }

  // For the run, which watches its streams.

  /// A place in the stream's work that the GPU has not passed, as far as is known.
  struct Mark {
    std::shared_ptr<CudaEvent> event;
    std::optional<uint32_t> op;
    std::string words;
    uint64_t number;  // over all streams, in the order of issue
    uint64_t given;   // to this stream before it
  };
  /// Forgets the marks that the GPU has passed. Fails the run where the GPU has failed.
  void sweep();
  [[nodiscard]] bool idle() const { return given_ == passed_ && collected_.empty(); }
  [[nodiscard]] const Mark* first_mark() const { return marks_.empty() ? nullptr : &marks_.front(); }
  /// "rank 3, compute, F0.1"
  [[nodiscard]] std::string where(const Mark& mark) const;

 private:
  struct Timed {
    std::shared_ptr<CudaEvent> begin, end;
  };

  /// Whether the GPU takes more. False once the run has failed.
  bool ready();
  void flush();
  void note_given(std::string words);
  void mark(std::shared_ptr<CudaEvent> event, std::string words);
  [[nodiscard]] std::shared_ptr<CudaEvent> make_event();

  CudaDevice& device_;
  const std::string name_;
  cudaStream_t handle_ = nullptr;
  std::optional<uint32_t> op_;
  uint64_t given_ = 0, marked_ = 0, passed_ = 0;  // calls: all, those before the last mark, those passed
  std::deque<Mark> marks_;
  std::shared_ptr<CudaEvent> latest_;  // the event behind all that was given, if there is one

  Graphs graphs_;
  std::vector<GraphCall> collected_;
  std::shared_ptr<CudaEvent> behind_collected_;  // where it was asked for

  bool timed_ = false;
  std::vector<Timed> timed_kernels_;
};

/// Throws std::logic_error if `stream` is not of the CUDA backend.
CudaStream& cuda_stream(Stream& stream);

}  // namespace stp::cuda
