#include "stp/cuda/stream_kernels.h"

#include <stdexcept>
#include <utility>

#include "stp/cuda/cuda_check.h"
#include "stp/cuda/cuda_memory.h"
#include "stp/cuda/cuda_stream.h"

namespace stp::cuda {

StreamKernels::StreamKernels(CudaRun& run, ScratchMemory scratch)
    : LaunchedKernels(std::move(scratch)), flags_(run) {}

void StreamKernels::enqueue(Stream& stream, std::unique_ptr<RepeatableCall> call) {
  cuda_stream(stream).enqueue(std::move(call));
}

void StreamKernels::enqueue(Stream& stream, std::function<void(cudaStream_t)> work) {
  cuda_stream(stream).enqueue(std::move(work));
}

void StreamKernels::expect_held(const Tensor& tensor) { held_memory(tensor); }

void* StreamKernels::address(const Tensor& tensor) { return data<std::byte>(tensor); }

void StreamKernels::copy_bytes(cudaStream_t stream, const void* from, void* to, size_t bytes) {
  STP_CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream));
}

void StreamKernels::enqueue_check(Stream& stream, const std::string& what,
                                  std::function<void(cudaStream_t, int32_t*)> launch) {
  CudaStream& ours = cuda_stream(stream);
  ours.enqueue([this, &ours, what, launch = std::move(launch)](cudaStream_t s) {
    int32_t* const flag = flags_.take();
    launch(s, flag);
    ours.when_passed([this, flag, what] {
      if (flags_.give_back(flag) != 0) throw std::runtime_error(what + " is not finite");
    });
  });
}

}  // namespace stp::cuda
