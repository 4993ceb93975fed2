// A device of the CUDA backend: one rank's streams and memory on the GPU that it shares with the others of
// its process.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_set>

#include "stp/cuda/cuda_run.h"
#include "stp/cuda/graph_cache.h"
#include "stp/cuda/memory_slots.h"
#include "stp/cuda/scratch_blocks.h"
#include "stp/device/backend.h"
#include "stp/device/device.h"
#include "stp/device/kernels.h"

namespace stp::cuda {

/// Tensors get slots (lib/stp/cuda/memory_slots.h) of a pool of the rank's own. They are counted, and held
/// against the limit, in the order of the host's calls, which is that of the program; what kernels and links
/// use beside them is counted apart. synchronize() gives slots back to the GPU that are not used any more.
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
  Tensor allocate(Stream& stream, MemoryKind kind, DType type, int64_t rows, int64_t columns) override;
  void retag(Stream& stream, const Tensor& tensor, MemoryKind kind) override;
  void release(Stream& stream, Tensor& tensor) override;
  void upload(Stream& stream, const Tensor& tensor, std::span<const std::byte> bytes) override;
  void download(Stream& stream, const Tensor& tensor, std::span<std::byte> bytes) override;
  void synchronize() override;

  Kernels& kernels() override { return *kernels_; }
  MemoryLedger& memory() override { return ledger_; }
  std::optional<double> share_in_graphs() override;
  bool time_kernels(bool on) override;
  double take_kernel_seconds() override;

  /// For work that is being issued; the device outlives it.
  [[nodiscard]] ScratchBlocks& scratch() { return scratch_; }

  /// Of all streams so far. After a synchronisation.
  [[nodiscard]] GraphCounts graphs() const { return run_.graphs(rank_); }

  [[nodiscard]] CudaRun& run() const { return run_; }
  [[nodiscard]] int rank() const { return rank_; }

 private:
  class Pool;
  struct Staging;

  void* fresh(cudaStream_t stream, size_t bytes);
  Staging& staging();
  size_t take_staging(size_t bytes);

  CudaRun& run_;
  const int rank_;
  const bool poison_, graphs_;
  MemoryLedger ledger_;
  std::unique_ptr<Pool> pool_;
  std::unordered_set<void*> live_;  // of the pool, and not given back; guarded by the order's mutex
  MemorySlots slots_;
  ScratchBlocks scratch_;
  std::shared_ptr<Staging> staging_;  // once it is needed
  std::unique_ptr<Kernels> kernels_;  // last: they may use all others
};

}  // namespace stp::cuda
