// The kernels of the CUDA backend for a program without a device: the launched ones as they are, on the fake
// runtime's streams, and matrix products by plain loops.
#include <stdexcept>
#include <utility>

#include "stp/backend/bfloat16.h"
#include "stp/cuda/cuda_check.h"
#include "stp/cuda/cuda_kernels.h"
#include "stp/cuda/cuda_memory.h"
#include "stp/cuda/cuda_stream.h"
#include "stp/cuda/launched_kernels.h"
#include "support/fake_cuda.h"

namespace stp {
namespace {

double element(const void* matrix, int64_t i, DType type) {
  return type == DType::f32 ? static_cast<const float*>(matrix)[i] : static_cast<const Bfloat16*>(matrix)[i];
}

class KernelsOnHost : public LaunchedKernels {
 public:
  using LaunchedKernels::LaunchedKernels;

 protected:
  void enqueue(Stream& stream, std::unique_ptr<RepeatableCall> call) override {
    cuda_stream(stream).enqueue(std::move(call));
  }
  void enqueue(Stream& stream, std::function<void(cudaStream_t)> work) override {
    cuda_stream(stream).enqueue(std::move(work));
  }
  void expect_held(const Tensor& tensor) override { held_memory(tensor); }
  void* address(const Tensor& tensor) override { return data<std::byte>(tensor); }
  void copy_bytes(cudaStream_t stream, const void* from, void* to, size_t bytes) override {
    STP_CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream));
  }
  void multiply(cudaStream_t stream, const Product& product) override {
    fake_cuda::launch(stream, [product] {
      const auto [transpose_a, transpose_b, m, n, k, alpha, beta, a, b, c, type, c_type] = product;
      for (int64_t row = 0; row < m; ++row)
        for (int64_t column = 0; column < n; ++column) {
          double sum = 0;
          for (int64_t i = 0; i < k; ++i)
            sum += element(a, transpose_a ? i * m + row : row * k + i, type) *
                   element(b, transpose_b ? column * k + i : i * n + column, type);
          const int64_t to = row * n + column;
          sum = alpha * sum + (beta == 0 ? 0 : beta * element(c, to, c_type));
          if (c_type == DType::f32) {
            static_cast<float*>(c)[to] = static_cast<float>(sum);
          } else {
            static_cast<Bfloat16*>(c)[to] = Bfloat16(static_cast<float>(sum));
          }
        }
    });
  }
  void enqueue_check(Stream& stream, const std::string& what,
                     std::function<void(cudaStream_t, int32_t*)> launch) override {
    CudaStream& ours = cuda_stream(stream);
    ours.enqueue([&ours, what, launch = std::move(launch)](cudaStream_t s) {
      const auto flag = std::make_shared<int32_t>(0);
      launch(s, flag.get());
      ours.when_passed([flag, what] {
        if (*flag != 0) throw std::runtime_error(what + " is not finite");
      });
    });
  }
};

}  // namespace

std::unique_ptr<Kernels> make_cuda_kernels(CudaRun&, const ScratchMemory& scratch, const CudaKernelOptions&) {
  return std::make_unique<KernelsOnHost>(scratch);
}

}  // namespace stp
