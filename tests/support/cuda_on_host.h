// One rank of the CUDA backend on the fake runtime (fake_cuda.h), with one stream.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "stp/cuda/cuda_backend.h"
#include "stp/cuda/cuda_check.h"
#include "support/fake_cuda.h"

namespace stp::testing_support {

using namespace cuda;

class CudaOnHost : public testing::Test {
 protected:
  /// Deadlines that are never reached, or always.
  static constexpr double kNever = 3600, kSoon = 0.1;

  CudaOnHost() {
    fake_cuda::reset(1);
    start({.deadline_s = kNever});
  }
  ~CudaOnHost() override { fake_cuda::reset(1); }
  void start(const BackendOptions& options) {
    stream_.reset();
    backend_ = cuda::make_backend(options);
    stream_ = device().make_stream("compute", StreamPriority::compute);
  }
  CudaDevice& device() { return dynamic_cast<CudaDevice&>(backend_->device(0)); }
  CudaStream& stream() { return cuda_stream(*stream_); }
  Tensor bytes(int64_t count) { return bytes(count, *stream_); }
  Tensor bytes(int64_t count, Stream& on) {
    return device().allocate(on, MemoryKind::working, DType::bf16, 1, count / 2);
  }
  void set(const Tensor& tensor, int value) { set(tensor, value, stream()); }
  static void set(const Tensor& tensor, int value, Stream& on) {
    cuda_stream(on).give(
        [&](cudaStream_t at) { STP_CUDA(cudaMemsetAsync(address(tensor), value, tensor.bytes(), at)); });
  }
  std::vector<float> floats(const Tensor& tensor) { return download<float>(device(), stream(), tensor); }
  [[nodiscard]] std::string failure() const { return backend_->guard().failure(); }

  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Stream> stream_;
};

}  // namespace stp::testing_support
