// A device of the CPU backend: one rank's streams and memory.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "stp/cpu/blas.h"
#include "stp/cpu/cpu_backend.h"
#include "stp/cpu/cpu_run.h"
#include "stp/device/backend.h"
#include "stp/device/kernels.h"

namespace stp::cpu {

class CpuStream;

/// Stream priorities are ignored: the system's scheduler favours threads that mostly sleep, such as
/// communication streams.
class CpuDevice : public Device {
 public:
  /// `run` must outlive the device, and the device its streams.
  CpuDevice(CpuRun& run, int rank, const BackendOptions& options, const ReplaceKernels& replace = {});
  CpuDevice(const CpuDevice&) = delete;
  CpuDevice& operator=(const CpuDevice&) = delete;
  ~CpuDevice() override;

  std::unique_ptr<Stream> make_stream(const std::string& name, StreamPriority priority) override;
  void upload(Stream& stream, const Tensor& tensor, std::span<const std::byte> bytes) override;
  void download(Stream& stream, const Tensor& tensor, std::span<std::byte> bytes) override;
  void synchronize() override;

  Kernels& kernels() override { return *kernels_; }
  [[nodiscard]] const BlasCounter& blas() const { return blas_; }

 private:
  std::byte* take_memory(size_t bytes) override;
  void free_memory(std::byte* at) override;
  std::byte* take_host_memory(size_t bytes) override { return take_memory(bytes); }
  void free_host_memory(std::byte* at) override { free_memory(at); }
  void fill_with_nan(Stream& stream, std::byte* at, size_t bytes) override;

  CpuRun& run_;
  const int rank_;
  BlasCounter blas_;
  std::unique_ptr<Kernels> kernels_;
  std::vector<CpuStream*> streams_;  // existing ones
};

}  // namespace stp::cpu
