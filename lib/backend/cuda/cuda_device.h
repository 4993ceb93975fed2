// A device of the CUDA backend: one rank's streams and memory on the GPU that it shares with the others of
// its process.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_set>

#include "stp/backend/backend.h"
#include "stp/backend/device.h"
#include "stp/backend/kernels.h"
#include "stp/cuda/cuda_run.h"
#include "stp/cuda/scratch_memory.h"

namespace stp {

/// Memory comes from a pool of the rank's own and is taken and given back in the order of the streams; it is
/// counted, and held against the limit, in the order of the host's calls, which is that of the program. Data
/// of hosts goes through pinned memory, a piece at a time. What is never released ends with the device, save
/// where the run has failed and the GPU is still at work.
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

  // For work that is being issued: memory that is used in the order of `stream` alone, and counted nowhere.
  void* take(cudaStream_t stream, size_t bytes);
  void give_back(cudaStream_t stream, void* at, size_t bytes);
  /// The two for kernels, which the device outlives.
  [[nodiscard]] ScratchMemory scratch();

  [[nodiscard]] CudaRun& run() const { return run_; }
  [[nodiscard]] int rank() const { return rank_; }

 private:
  class Pool;
  struct Staging;

  Staging& staging();
  size_t take_staging(size_t bytes);

  CudaRun& run_;
  const int rank_;
  const bool poison_;
  MemoryLedger ledger_;
  std::unique_ptr<Pool> pool_;
  std::unordered_set<void*> live_;    // taken and not given back; guarded by the order's mutex
  std::shared_ptr<Staging> staging_;  // once it is needed
  std::unique_ptr<Kernels> kernels_;  // last: they may use all others
};

}  // namespace stp
