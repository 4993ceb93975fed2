// The kernels of the CUDA backend for a program without a device: the launched ones as they are, on the fake
// runtime's streams, and matrix products by plain loops.

#include <cstdint>
#include <memory>
#include <numeric>
#include <vector>

#include "stp/cuda/cuda_kernels.h"
#include "stp/cuda/stream_kernels.h"
#include "stp/device/bfloat16.h"
#include "support/fake_cuda.h"

namespace stp::cuda {
namespace {

double element(const void* matrix, int64_t i, DType type) {
  return type == DType::f32 ? static_cast<const float*>(matrix)[i] : static_cast<const Bfloat16*>(matrix)[i];
}

// Row-major, of `rows` x `columns`, from a matrix that lies so or, transposed, the other way.
std::vector<double> elements(const void* matrix, int64_t rows, int64_t columns, bool transposed, DType type) {
  std::vector<double> all(rows * columns);
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t column = 0; column < columns; ++column)
      all[row * columns + column] =
          element(matrix, transposed ? column * rows + row : row * columns + column, type);
  return all;
}

class KernelsOnHost : public StreamKernels {
 public:
  using StreamKernels::StreamKernels;

 protected:
  void multiply(cudaStream_t stream, const Product& product) override {
    fake_cuda::launch(stream, [product] {
      const auto [transpose_a, transpose_b, m, n, k, alpha, beta, a, b, c, type, c_type] = product;
      const std::vector<double> rows = elements(a, m, k, transpose_a, type),
                                columns = elements(b, n, k, !transpose_b, type);
      for (int64_t row = 0; row < m; ++row)
        for (int64_t column = 0; column < n; ++column) {
          double sum = std::inner_product(&rows[row * k], &rows[row * k] + k, &columns[column * k], 0.0);
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

}  // namespace stp::cuda
