// The vocabulary-parallel cross-entropy: a block to each row of logits. Between the steps are all-reduces, so
// each of them reads the logits once.
#include <cmath>

#include "stp/cuda/device.cuh"
#include "stp/cuda/launch.h"

namespace stp::cuda::launch {
namespace {

constexpr int kThreads = 512;

template <typename T, int N>
__global__ void __launch_bounds__(kThreads)
    row_maximum_kernel(int64_t rows, int columns, const T* logits, float* maximum) {
  const int first = static_cast<int>(threadIdx.x) * N, step = static_cast<int>(blockDim.x) * N;
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    float largest = -INFINITY;
    for (int i = first; i < columns; i += step) {
      const Values<N> v = load<N>(logits + row * columns + i);
#pragma unroll
      for (int k = 0; k < N; ++k) largest = fmaxf(largest, v.at[k]);
    }
    largest = reduce_block(largest, Maximum{}, -INFINITY);
    if (threadIdx.x == 0) maximum[row] = largest;
  }
}

template <typename T, int N>
__global__ void __launch_bounds__(kThreads)
    exponential_sums_kernel(int64_t rows, int columns, const T* logits, const float* maximum,
                            const int32_t* targets, int64_t first_entry, float* sums) {
  const int first = static_cast<int>(threadIdx.x) * N, step = static_cast<int>(blockDim.x) * N;
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const T* const from = logits + row * columns;
    const float shift = maximum[row];
    float sum = 0;
    for (int i = first; i < columns; i += step) {
      const Values<N> v = load<N>(from + i);
#pragma unroll
      for (int k = 0; k < N; ++k) sum += expf(v.at[k] - shift);
    }
    sum = reduce_block(sum, Sum{}, 0.0F);
    if (threadIdx.x == 0) {
      const int64_t target = targets[row] - first_entry;
      sums[2 * row] = sum;
      sums[2 * row + 1] = target >= 0 && target < columns ? to_float(from[target]) : 0.0F;
    }
  }
}

template <typename T, int N>
__global__ void __launch_bounds__(kThreads)
    logits_gradient_kernel(int64_t rows, int columns, const float* maximum, const float* sums,
                           const int32_t* targets, int64_t first_entry, float factor, T* logits) {
  const int first = static_cast<int>(threadIdx.x) * N, step = static_cast<int>(blockDim.x) * N;
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    T* const at = logits + row * columns;
    const float shift = maximum[row], share = factor / sums[2 * row];
    const int64_t target = targets[row] - first_entry;
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

// One block: the order of the sum is the same in every run.
__global__ void __launch_bounds__(kThreads)
    add_loss_kernel(int64_t rows, const float* maximum, const float* sums, double factor, float* loss) {
  double total = 0;
  for (int64_t row = threadIdx.x; row < rows; row += blockDim.x)
    total += log(static_cast<double>(sums[2 * row])) + static_cast<double>(maximum[row]) -
             static_cast<double>(sums[2 * row + 1]);
  total = reduce_block(total, Sum{}, 0.0);
  if (threadIdx.x == 0) *loss += static_cast<float>(factor * total);
}

}  // namespace

template <typename T>
void row_maximum(cudaStream_t stream, int64_t rows, int64_t columns, const T* logits, float* maximum) {
  if (rows == 0) return;
  by_width<T>(columns, [&](auto width) {
    const auto kernel = row_maximum_kernel<T, width>;
    start(kernel, row_shape(kernel, rows, columns / width, kThreads), stream, rows, static_cast<int>(columns),
          logits, maximum);
  });
}

template <typename T>
void exponential_sums(cudaStream_t stream, int64_t rows, int64_t columns, const T* logits,
                      const float* maximum, const int32_t* targets, int64_t first, float* sums) {
  if (rows == 0) return;
  by_width<T>(columns, [&](auto width) {
    const auto kernel = exponential_sums_kernel<T, width>;
    start(kernel, row_shape(kernel, rows, columns / width, kThreads), stream, rows, static_cast<int>(columns),
          logits, maximum, targets, first, sums);
  });
}

template <typename T>
void cross_entropy(cudaStream_t stream, int64_t rows, int64_t columns, const float* maximum,
                   const float* sums, const int32_t* targets, int64_t first, double factor, T* logits,
                   float* loss) {
  if (rows == 0) return;
  start(add_loss_kernel, LaunchShape{1, kThreads}, stream, rows, maximum, sums, factor, loss);
  by_width<T>(columns, [&](auto width) {
    const auto kernel = logits_gradient_kernel<T, width>;
    start(kernel, row_shape(kernel, rows, columns / width, kThreads), stream, rows, static_cast<int>(columns),
          maximum, sums, targets, first, static_cast<float>(factor), logits);
  });
}

#define STP_INSTANTIATE(T)                                                                                \
  template void row_maximum(cudaStream_t, int64_t, int64_t, const T*, float*);                            \
  template void exponential_sums(cudaStream_t, int64_t, int64_t, const T*, const float*, const int32_t*,  \
                                 int64_t, float*);                                                        \
  template void cross_entropy(cudaStream_t, int64_t, int64_t, const float*, const float*, const int32_t*, \
                              int64_t, double, T*, float*)
STP_INSTANTIATE(float);
STP_INSTANTIATE(bf16);
#undef STP_INSTANTIATE

}  // namespace stp::cuda::launch
