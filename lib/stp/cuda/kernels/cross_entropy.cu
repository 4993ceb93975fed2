// The vocabulary-parallel cross-entropy, with one block per row of logits. All-reduces separate sums and
// gradient, each of which reads the logits once.
#include <cfloat>
#include <cmath>

#include "stp/cuda/kernels/cuda_kernels.h"
#include "stp/cuda/kernels/device.cuh"

namespace stp::cuda {
namespace {

constexpr int kLossThreads = 512;

// Each thread's sum is relative to its largest logit so far, and is rescaled at a larger one.
template <typename T, int N>
__global__ void __launch_bounds__(kLossThreads)
    exponential_sums_kernel(int64_t rows, int columns, const T* logits, const int32_t* targets,
                            int64_t first_entry, float* maximum, float* own, float* sums) {
  const int first = static_cast<int>(threadIdx.x) * N, step = static_cast<int>(blockDim.x) * N;
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const T* const from = logits + row * columns;
    float largest = -FLT_MAX, sum = 0;  // finite, or a first logit of -infinity would give NaN
    for (int i = first; i < columns; i += step) {
      const Values<N> v = load<N>(from + i);
      float next = largest;
#pragma unroll
      for (int k = 0; k < N; ++k) next = fmaxf(next, v.at[k]);
      if (next > largest) sum *= expf(largest - next);
      largest = next;
#pragma unroll
      for (int k = 0; k < N; ++k) sum += expf(v.at[k] - largest);
    }
    const float of_row = reduce_block(largest, Maximum{}, -INFINITY);
    sum = reduce_block(sum * expf(largest - of_row), Sum{}, 0.0F);
    if (threadIdx.x == 0) {
      const int64_t target = targets[row] - first_entry;
      maximum[row] = own[row] = of_row;
      sums[2 * row] = sum;
      sums[2 * row + 1] = target >= 0 && target < columns ? to_float(from[target]) : 0.0F;
    }
  }
}

template <typename T, int N>
__global__ void __launch_bounds__(kLossThreads)
    logits_gradient_kernel(int64_t rows, int columns, const float* maximum, const float* sums,
                           const int32_t* targets, int64_t first_entry, float factor, T* logits) {
  const int first = static_cast<int>(threadIdx.x) * N, step = static_cast<int>(blockDim.x) * N;
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    T* const at = logits + row * columns;
    const float shift = maximum[row], share = sums == nullptr ? factor : factor / sums[2 * row];
    const int64_t target = targets == nullptr ? -1 : targets[row] - first_entry;
    for (int i = first; i < columns; i += step) {
      Values<N> v = load<N>(at + i);
#pragma unroll
      for (int k = 0; k < N; ++k) {
        v.at[k] = expf(v.at[k] - shift) * share;
        if (i + k == target) v.at[k] -= factor;
      }
      store(at + i, v);
    }
  }
}

template <typename T>
__global__ void __launch_bounds__(kLossThreads)
    rescale_rows_kernel(int64_t rows, int width, int columns, const float* own, const float* maximum,
                        const float* sums, float factor, T* x) {
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const float by = factor * expf(own[row] - maximum[row]) / (sums == nullptr ? 1.0F : sums[2 * row]);
    for (int i = static_cast<int>(threadIdx.x); i < columns; i += static_cast<int>(blockDim.x)) {
      T& element = x[row * width + i];
      element = from_float<T>(to_float(element) * by);
    }
  }
}

// One block: the order of the sum is the same in every run.
__global__ void __launch_bounds__(kLossThreads)
    add_loss_kernel(int64_t rows, const float* maximum, const float* sums, double factor, float* loss) {
  double total = 0;
  for (int64_t row = threadIdx.x; row < rows; row += blockDim.x)
    total += log(static_cast<double>(sums[2 * row])) + static_cast<double>(maximum[row]) -
             static_cast<double>(sums[2 * row + 1]);
  total = reduce_block(total, Sum{}, 0.0);
  if (threadIdx.x == 0) *loss += static_cast<float>(factor * total);
}

}  // namespace

void CudaKernels::run(Stream& stream, const kernel::ExponentialSums& k) {
  with_rows(k, k.logits, [&]<typename T>(T) {
    by_width<T>(k.logits.columns, [&](auto width) {
      const auto kernel = exponential_sums_kernel<T, width>;
      start(stream, kernel, row_shape(kernel, k.logits.rows, k.logits.columns / width, kLossThreads),
            k.logits.rows, static_cast<int>(k.logits.columns), data<T>(k.logits), data<int32_t>(k.targets),
            k.first, data<float>(k.maximum), data<float>(k.own), data<float>(k.sums));
    });
  });
}

void CudaKernels::run(Stream& stream, const kernel::RescaleRows& k) {
  expect_columns(k.name, k.x.columns);
  with_type(k, [&]<typename T>(T) {
    if (k.x.rows == 0) return;
    const auto kernel = rescale_rows_kernel<T>;
    start(stream, kernel, row_shape(kernel, k.x.rows, k.columns, kLossThreads), k.x.rows,
          static_cast<int>(k.x.columns), static_cast<int>(k.columns), data<float>(k.own),
          data<float>(k.maximum), data<float>(k.sums), static_cast<float>(k.factor), data<T>(k.x));
  });
}

void CudaKernels::run(Stream& stream, const kernel::CrossEntropy& k) {
  expect_columns(k.name, k.logits.columns);
  with_type(k, [&]<typename T>(T) {
    if (k.logits.rows == 0) return;
    if (k.loss)
      start(stream, add_loss_kernel, LaunchShape{1, kLossThreads}, k.logits.rows, data<float>(k.maximum),
            data<float>(k.sums), k.factor, data<float>(k.loss));
    by_width<T>(k.logits.columns, [&](auto width) {
      const auto kernel = logits_gradient_kernel<T, width>;
      start(stream, kernel, row_shape(kernel, k.logits.rows, k.logits.columns / width, kLossThreads),
            k.logits.rows, static_cast<int>(k.logits.columns), data<float>(k.maximum), data<float>(k.sums),
            data<int32_t>(k.targets), k.first, static_cast<float>(k.factor), data<T>(k.logits));
    });
  });
}

}  // namespace stp::cuda
