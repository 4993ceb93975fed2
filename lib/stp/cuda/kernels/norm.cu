// RMSNorm, LayerNorm, and sums over columns for its backward and for biases: a first kernel sums shares of
// the rows, a second kernel adds the shares in order.
#include "stp/cuda/kernels/cuda_kernels.h"
#include "stp/cuda/kernels/device.cuh"

namespace stp::cuda {
namespace {

// Threads of a block that handles one row.
constexpr int kRowThreads = 512;
// Largest number of separate shares of the rows.
constexpr int64_t kMostShares = 512;
// Blocks of short rows, as a head's, are small, so more of them are needed.
int64_t most_shares(int64_t columns) { return std::max(kMostShares, (int64_t{1} << 19) / columns); }
// Sums over columns: a block is lanes along the columns times lines along the rows.
constexpr int kLines = 8;

// Of x with LayerNorm's mean subtracted, or as it is: `kCentred`. Where statistics are a row's mean and rstd,
// they are two, else one.
template <bool kCentred, typename T, int N>
__global__ void __launch_bounds__(kRowThreads)
    norm_forward_kernel(int64_t rows, int columns, const T* x, const T* gain, const T* bias, float epsilon,
                        T* y, float* statistics) {
  const int first = static_cast<int>(threadIdx.x) * N, step = static_cast<int>(blockDim.x) * N;
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const T* from = x + row * columns;
    float mean = 0;
    if constexpr (kCentred) {
      for (int i = first; i < columns; i += step) {
        const Values<N> v = load<N>(from + i);
#pragma unroll
        for (int k = 0; k < N; ++k) mean += v.at[k];
      }
      mean = reduce_block(mean, Sum{}, 0.0F) / static_cast<float>(columns);
    }
    float squares = 0;
    for (int i = first; i < columns; i += step) {  // from here on the row is in the first-level cache
      const Values<N> v = load<N>(from + i);
#pragma unroll
      for (int k = 0; k < N; ++k) squares += (v.at[k] - mean) * (v.at[k] - mean);
    }
    squares = reduce_block(squares, Sum{}, 0.0F);
    const float r = 1.0F / sqrtf(squares / static_cast<float>(columns) + epsilon);
    if (threadIdx.x == 0) {
      if constexpr (kCentred) statistics[2 * row] = mean;
      statistics[kCentred ? 2 * row + 1 : row] = r;
    }
    for (int i = first; i < columns; i += step) {
      Values<N> v = load<N>(from + i);
      const Values<N> g = load<N>(gain + i);
#pragma unroll
      for (int k = 0; k < N; ++k) v.at[k] = (v.at[k] - mean) * (r * g.at[k]);
      if (kCentred && bias != nullptr) {
        const Values<N> add = load<N>(bias + i);
#pragma unroll
        for (int k = 0; k < N; ++k) v.at[k] += add.at[k];
      }
      store(y + row * columns + i, v);
    }
  }
}

// Each block takes every gridDim-th row and sums its share of the gain's gradient: in shared memory, or in
// the share itself if a row is too long. A thread handles the same columns of all rows and does not use other
// threads' sums.
template <bool kCentred, typename T, int N>
__global__ void __launch_bounds__(kRowThreads)
    norm_backward_kernel(int64_t rows, int columns, const T* dy, const T* x, const T* gain,
                         const float* statistics, float residual_factor, const T* residual, T* dx,
                         float* gain_shares, bool in_shared) {
  const int first = static_cast<int>(threadIdx.x) * N, step = static_cast<int>(blockDim.x) * N;
  float* const share = gain_shares + int64_t{blockIdx.x} * columns;
  float* const sums = in_shared ? static_cast<float*>(dynamic_shared()) : share;
  for (int i = first; i < columns; i += step) store(sums + i, Values<N>{});
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const int64_t offset = row * columns;
    const float mean = kCentred ? statistics[2 * row] : 0.0F;
    const float r = statistics[kCentred ? 2 * row + 1 : row];
    float along = 0, all = 0;
    for (int i = first; i < columns; i += step) {
      const Values<N> d = load<N>(dy + offset + i), v = load<N>(x + offset + i), g = load<N>(gain + i);
#pragma unroll
      for (int k = 0; k < N; ++k) {
        along += d.at[k] * g.at[k] * (v.at[k] - mean);
        all += d.at[k] * g.at[k];
      }
    }
    along = reduce_block(along, Sum{}, 0.0F);
    // y = (x − mean)·r·gain, ∂r/∂x = −r³·(x − mean) / columns; the mean takes each row's mean gradient away
    const float pull = along * r * r * r / static_cast<float>(columns);
    const float shift = kCentred ? reduce_block(all, Sum{}, 0.0F) * r / static_cast<float>(columns) : 0.0F;
    for (int i = first; i < columns; i += step) {
      const Values<N> d = load<N>(dy + offset + i), v = load<N>(x + offset + i), g = load<N>(gain + i);
      Values<N> sum = load<N>(sums + i), to;
#pragma unroll
      for (int k = 0; k < N; ++k) {
        const float u = v.at[k] - mean;
        sum.at[k] += d.at[k] * u * r;
        to.at[k] = d.at[k] * g.at[k] * r - u * pull - shift;
      }
      store(sums + i, sum);
      if (residual != nullptr) {
        const Values<N> add = load<N>(residual + offset + i);
#pragma unroll
        for (int k = 0; k < N; ++k) to.at[k] += residual_factor * add.at[k];
      }
      store(dx + offset + i, to);
    }
  }
  if (in_shared)
    for (int i = first; i < columns; i += step) store(share + i, load<N>(sums + i));
}

// shares[y, column] = the sum over the y-th share of the rows. Each line of threads takes every kLines-th row
// of the share.
template <typename T, int N>
__global__ void __launch_bounds__(kWarp* kLines)
    column_shares_kernel(int64_t rows, int columns, const T* in, float* shares) {
  __shared__ float of_line[kLines][N][kWarp];  // neighbouring lanes in neighbouring banks
  const int lane = static_cast<int>(threadIdx.x), line = static_cast<int>(threadIdx.y);
  const int column = (static_cast<int>(blockIdx.x) * kWarp + lane) * N;
  const int64_t each = divide_up<int64_t>(rows, gridDim.y);
  const int64_t begin = blockIdx.y * each, end = min(begin + each, rows);
  Values<N> sum{};
  if (column < columns)
    for (int64_t row = begin + line; row < end; row += kLines) {
      const Values<N> v = load<N>(in + row * columns + column);
#pragma unroll
      for (int k = 0; k < N; ++k) sum.at[k] += v.at[k];
    }
#pragma unroll
  for (int k = 0; k < N; ++k) of_line[line][k][lane] = sum.at[k];
  __syncthreads();
  if (line != 0 || column >= columns) return;
  for (int other = 1; other < kLines; ++other)
#pragma unroll
    for (int k = 0; k < N; ++k) sum.at[k] += of_line[other][k][lane];
  store(shares + int64_t{blockIdx.y} * columns + column, sum);
}

// sums += Σ shares
__global__ void __launch_bounds__(kWarp* kLines)
    add_shares_kernel(int64_t count, int columns, const float* shares, float* sums) {
  __shared__ float of_line[kLines][kWarp];
  const int lane = static_cast<int>(threadIdx.x), line = static_cast<int>(threadIdx.y);
  const int column = static_cast<int>(blockIdx.x) * kWarp + lane;
  float sum = 0;
  if (column < columns)
    for (int64_t share = line; share < count; share += kLines) sum += shares[share * columns + column];
  of_line[line][lane] = sum;
  __syncthreads();
  if (line != 0 || column >= columns) return;
  for (int other = 1; other < kLines; ++other) sum += of_line[other][lane];
  sums[column] += sum;
}

void add_shares(Stream& stream, int64_t count, const float* shares, const TensorView& sums) {
  const LaunchShape shape{narrow(divide_up<int64_t>(sums.columns, kWarp)), dim3(kWarp, kLines)};
  start(stream, add_shares_kernel, shape, count, static_cast<int>(sums.columns), shares, data<float>(sums));
}

template <bool kCentred, typename T>
void norm_forward(Stream& stream, const kernel::NormForward& k) {
  by_width<T>(k.x.columns, [&](auto width) {
    const auto kernel = norm_forward_kernel<kCentred, T, width>;
    start(stream, kernel, row_shape(kernel, k.x.rows, k.x.columns / width, kRowThreads), k.x.rows,
          static_cast<int>(k.x.columns), data<T>(k.x), data<T>(k.gain), data<T>(k.bias),
          static_cast<float>(k.epsilon), data<T>(k.y), data<float>(k.statistics));
  });
}

// `shares`: memory for most_shares() rows, or for all.
template <bool kCentred, typename T>
void norm_backward(Stream& stream, const kernel::NormBackward& k, float* shares) {
  const size_t row_bytes = static_cast<size_t>(k.x.columns) * sizeof(float);
  int64_t count = 0;
  by_width<T>(k.x.columns, [&](auto width) {
    const auto kernel = norm_backward_kernel<kCentred, T, width>;
    const bool in_shared = row_bytes <= shared_limit(address_of(kernel));
    LaunchShape shape =
        row_shape(kernel, k.x.rows, k.x.columns / width, kRowThreads, in_shared ? row_bytes : 0);
    shape.blocks.x = std::min(shape.blocks.x, narrow(most_shares(k.x.columns)));
    count = shape.blocks.x;
    start(stream, kernel, shape, k.x.rows, static_cast<int>(k.x.columns), data<T>(k.dy), data<T>(k.x),
          data<T>(k.gain), data<float>(k.statistics), static_cast<float>(k.residual_factor),
          data<T>(k.residual), data<T>(k.dx), shares, in_shared);
  });
  add_shares(stream, count, shares, k.gain_gradient);
}

size_t bytes_of_shares(const TensorView& x) {
  return static_cast<size_t>(std::min(x.rows, most_shares(x.columns)) * x.columns) * sizeof(float);
}

}  // namespace

void CudaKernels::run(Stream& stream, const kernel::NormForward& k) {
  with_rows(k, k.x, [&]<typename T>(T) {
    k.centred ? norm_forward<true, T>(stream, k) : norm_forward<false, T>(stream, k);
  });
}

void CudaKernels::run(Stream& stream, const kernel::NormBackward& k) {
  with_rows(k, k.x, [&]<typename T>(T) {
    if (k.bias_gradient)  // first: dx may be dy
      run(stream, kernel::AddColumnSums{.gradient = k.dy, .bias_gradient = k.bias_gradient});
    auto* const shares = reinterpret_cast<float*>(scratch(stream, bytes_of_shares(k.x)));
    k.centred ? norm_backward<true, T>(stream, k, shares) : norm_backward<false, T>(stream, k, shares);
  });
}

void CudaKernels::run(Stream& stream, const kernel::AddColumnSums& k) {
  constexpr int64_t kRowsEach = 64;  // eight loads in flight per thread
  const TensorView& g = k.gradient;
  with_rows(k, g, [&]<typename T>(T) {
    const int64_t count = std::min(divide_up(g.rows, kRowsEach), kMostShares);
    auto* const shares =
        reinterpret_cast<float*>(scratch(stream, static_cast<size_t>(count * g.columns) * sizeof(float)));
    by_width<T>(g.columns, [&](auto width) {
      const LaunchShape shape{dim3(narrow(divide_up<int64_t>(g.columns, kWarp * width)), narrow(count)),
                              dim3(kWarp, kLines)};
      start(stream, column_shares_kernel<T, width>, shape, g.rows, static_cast<int>(g.columns), data<T>(g),
            shares);
    });
    add_shares(stream, count, shares, k.bias_gradient);
  });
}

}  // namespace stp::cuda
