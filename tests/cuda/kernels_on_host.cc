// The kernels of the CUDA backend for a program without a device: the launched ones as they are, on the fake
// runtime's streams, and matrix products by plain loops.

#include <memory>

#include "stp/backend/bfloat16.h"
#include "stp/cuda/cuda_kernels.h"
#include "stp/cuda/stream_kernels.h"
#include "support/fake_cuda.h"

namespace stp {
namespace {

double element(const void* matrix, int64_t i, DType type) {
  return type == DType::f32 ? static_cast<const float*>(matrix)[i] : static_cast<const Bfloat16*>(matrix)[i];
}

class KernelsOnHost : public StreamKernels {
 public:
  using StreamKernels::StreamKernels;

 protected:
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
};

}  // namespace

std::unique_ptr<Kernels> make_cuda_kernels(CudaRun& run, const ScratchMemory& scratch,
                                           const CudaKernelOptions&) {
  return std::make_unique<KernelsOnHost>(run, scratch);
}

}  // namespace stp
