// A device of the CUDA backend: one rank's streams and memory on the GPU that it shares with the others of
// its process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "stp/cuda/cuda_run.h"
#include "stp/cuda/cuda_stream.h"
#include "stp/device/backend.h"
#include "stp/device/device.h"
#include "stp/device/kernels.h"

namespace stp::cuda {

/// Data of hosts goes through pinned memory, a piece at a time. What is never released ends with the device,
/// save where the run has failed and the GPU is still at work.
class CudaDevice : public Device {
 public:
  /// `run` outlives the device, the device its streams. Throws CudaError.
  CudaDevice(CudaRun& run, int rank, const BackendOptions& options);
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;
  ~CudaDevice() override;

  std::unique_ptr<Stream> make_stream(const std::string& name, StreamPriority priority) override;
  void upload(Stream& stream, const Tensor& tensor, std::span<const std::byte> bytes) override;
  void download(Stream& stream, const Tensor& tensor, std::span<std::byte> bytes) override;
  void synchronize() override;
  void hold_compute(Stream& stream) override;

  Kernels& kernels() override { return *kernels_; }
  std::optional<double> share_in_graphs() override;
  bool time_kernels(bool on) override;
  double take_kernel_seconds() override;

  /// Memory for one call on `stream`, which is the next call's there. It is counted apart from tensors
  /// (MemoryTracker::scratch()). Null for no bytes. Throws std::runtime_error where there is none.
  std::byte* scratch(Stream& stream, size_t bytes);
  /// How kernels of all streams so far were launched.
  [[nodiscard]] GraphCounts graphs() const;

  [[nodiscard]] bool has_graphs() const { return has_graphs_; }
  [[nodiscard]] CudaRun& run() const { return run_; }
  [[nodiscard]] int rank() const { return rank_; }
  /// To be called by a stream that ends.
  void forget(const CudaStream& stream);

 private:
  struct Block {
    std::byte* at;
    size_t bytes;
  };
  struct Staged {
    size_t begin, end;
    std::shared_ptr<CudaEvent> copied;
  };

  std::byte* take_memory(size_t bytes) override;
  void free_memory(std::byte* at) override;
  std::byte* take_host_memory(size_t bytes) override;
  void free_host_memory(std::byte* at) override;
  void fill_with_nan(Stream& stream, std::byte* at, size_t bytes) override;

  [[nodiscard]] std::vector<CudaStream*> streams() const;
  std::byte* staging(size_t bytes);

  CudaRun& run_;
  const int rank_;
  const bool poison_, has_graphs_;
  const uint64_t hold_ns_;
  std::map<const CudaStream*, std::vector<Block>> scratch_;  // the last of a stream is its largest
  GraphCounts ended_graphs_;                                 // of streams that ended

  std::byte* pinned_ = nullptr;  // once it is needed
  size_t pinned_end_ = 0;        // of the latest piece
  std::deque<Staged> staged_;    // pieces on their way, the oldest first

  std::unique_ptr<Kernels> kernels_;  // last: they use all others
};

}  // namespace stp::cuda
