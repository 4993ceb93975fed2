// The launched kernels on CudaStreams: all kernels of a GPU but the products, which a library makes.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "stp/cuda/host_numbers.h"
#include "stp/cuda/launched_kernels.h"

namespace stp::cuda {

class StreamKernels : public LaunchedKernels {
 public:
  /// `run` outlives the kernels; its GPU is the current one from here on. Throws CudaError.
  StreamKernels(CudaRun& run, ScratchMemory scratch);

 protected:
  void enqueue(Stream& stream, std::unique_ptr<RepeatableCall> call) override;
  void enqueue(Stream& stream, std::function<void(cudaStream_t)> work) override;
  void expect_held(const Tensor& tensor) override;
  void* address(const Tensor& tensor) override;
  void copy_bytes(cudaStream_t stream, const void* from, void* to, size_t bytes) override;
  void enqueue_check(Stream& stream, const std::string& what,
                     std::function<void(cudaStream_t, int32_t*)> launch) override;

 private:
  HostNumbers<int32_t> flags_;
};

}  // namespace stp::cuda
