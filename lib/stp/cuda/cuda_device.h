// A device of the CUDA backend: one rank's streams and memory on the GPU that its process's ranks share.
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

/// Copies of host data pass through pinned memory, piece by piece. The destructor frees all memory, unless
/// the run has failed and the GPU is still working.
class CudaDevice : public Device {
 public:
  /// `run` must outlive the device, and the device its streams. Throws CudaError.
  CudaDevice(CudaRun& run, int rank, const BackendOptions& options);
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;
  ~CudaDevice() override;

  std::unique_ptr<Stream> make_stream(const std::string& name, StreamPriority priority) override;
  void upload(Stream& stream, const Tensor& tensor, std::span<const std::byte> bytes) override;
  void download(Stream& stream, const Tensor& tensor, std::span<std::byte> bytes) override;
  void synchronize() override;
  void pause(Stream& stream, double seconds) override;

  Kernels& kernels() override { return *kernels_; }
  std::optional<double> share_in_graphs() override;
  bool time_kernels(bool on) override;
  double take_kernel_seconds() override;

  /// Memory for one call on `stream`; the next call on `stream` reuses it. MemoryTracker::scratch() counts it
  /// apart from tensors. Null for 0 bytes. Throws std::runtime_error if no memory is left.
  std::byte* scratch(Stream& stream, size_t bytes);
  /// How kernels of all streams were launched so far.
  [[nodiscard]] GraphCounts graphs() const;

  [[nodiscard]] bool has_graphs() const { return has_graphs_; }
  [[nodiscard]] CudaRun& run() const { return run_; }
  [[nodiscard]] int rank() const { return rank_; }
  /// A stream's destructor calls it.
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
  std::map<const CudaStream*, std::vector<Block>> scratch_;  // by stream; its last block is its largest
  GraphCounts ended_graphs_;                                 // of streams that ended

  std::byte* pinned_ = nullptr;  // made at first use
  size_t pinned_end_ = 0;        // end of the latest piece
  std::deque<Staged> staged_;    // pieces still in transfer, the oldest first

  std::unique_ptr<Kernels> kernels_;  // last: they use all others
};

}  // namespace stp::cuda
