// One rank of the CUDA backend on the fake runtime (fake_cuda.h), with one stream.
#pragma once

#include <gtest/gtest.h>

#include <memory>

#include "stp/cuda/cuda_backend.h"
#include "stp/cuda/cuda_check.h"
#include "stp/cuda/cuda_memory.h"
#include "stp/cuda/cuda_stream.h"
#include "support/fake_cuda.h"

namespace stp::testing_support {

using namespace cuda;

/// Deadlines that are never reached, or always.
inline constexpr double kNever = 3600, kSoon = 0.1;

class CudaOnHost : public testing::Test {
 protected:
  CudaOnHost() { fake_cuda::reset(1); }
  ~CudaOnHost() override { fake_cuda::reset(1); }
  void start(const BackendOptions& options) {
    stream_.reset();
    backend_ = cuda::make_backend(options);
    stream_ = device().make_stream("compute", StreamPriority::compute);
  }
  Device& device() { return backend_->device(0); }
  CudaStream& stream() { return cuda_stream(*stream_); }
  Tensor bytes(int64_t count) {
    return device().allocate(*stream_, MemoryKind::working, DType::bf16, 1, count / 2);
  }
  void set(const Tensor& tensor, int value) {
    stream().enqueue([tensor, value](cudaStream_t at) {
      STP_CUDA(cudaMemsetAsync(data<std::byte>(tensor), value, tensor.bytes(), at));
    });
  }

  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Stream> stream_;
};

}  // namespace stp::testing_support
