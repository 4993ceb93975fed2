// A device of the CPU backend: streams, and memory that is taken and given back in their order.
#pragma once

#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "stp/cpu/blas_counter.h"
#include "stp/cpu/cpu_allocator.h"
#include "stp/cpu/cpu_run.h"
#include "stp/device/backend.h"
#include "stp/device/device.h"
#include "stp/device/kernels.h"

namespace stp::cpu {

class CpuStream;

/// All priorities of streams are one: the system's scheduler favours streams that
/// mostly sleep, as those of communication do.
class CpuDevice : public Device {
 public:
  /// `run` outlives the device, the device its streams.
  CpuDevice(CpuRun& run, int rank, const BackendOptions& options);

  std::unique_ptr<Stream> make_stream(const std::string& name, StreamPriority priority) override;
  Tensor allocate(Stream& stream, MemoryKind kind, DType type, int64_t rows, int64_t columns) override;
  void retag(Stream& stream, const Tensor& tensor, MemoryKind kind) override;
  void release(Stream& stream, Tensor& tensor) override;
  void upload(Stream& stream, const Tensor& tensor, std::span<const std::byte> bytes) override;
  void download(Stream& stream, const Tensor& tensor, std::span<std::byte> bytes) override;
  void synchronize() override;

  Kernels& kernels() override { return *kernels_; }
  MemoryLedger& memory() override { return allocator_.ledger(); }

  [[nodiscard]] const BlasCounter& blas() const { return blas_; }

 private:
  class Registered;

  CpuRun& run_;
  const int rank_;
  CpuAllocator allocator_;
  BlasCounter blas_;
  std::unique_ptr<Kernels> kernels_;
  std::vector<CpuStream*> streams_;  // those that are alive
};

}  // namespace stp::cpu
