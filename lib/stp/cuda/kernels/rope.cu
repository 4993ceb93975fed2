// Bias and rotary position embedding.
#include <cmath>
#include <numbers>
#include <numeric>

#include "stp/cuda/kernels/cuda_kernels.h"
#include "stp/cuda/kernels/device.cuh"

namespace stp::cuda {
namespace {

constexpr int kRopeThreads = 256;

// theta^(−2i/d) / 2π: the rotation of pair i from one position to the next, in full turns.
struct TurnsPerPosition {
  double of[kMaxHeadDim / 2];
};

// Positions of rows in their whole sequence, as position_of() (attention_shape.h).
struct Positions {
  int seq, cp, cp_index;
  __device__ int64_t of(int64_t row) const {
    const int64_t in_sample = row % seq, piece = seq / 2;
    if (cp == 1) return in_sample;
    return in_sample < piece ? cp_index * piece + in_sample : (2 * cp - 2 - cp_index) * piece + in_sample;
  }
};

// The block first computes the sines of its row's position, which all heads share. The angle is reduced to
// one turn in float64, so that late positions are as exact as early ones.
template <typename T, int N>
__global__ void __launch_bounds__(kRopeThreads)
    rotate_kernel(int64_t rows, Positions positions, int rotated_heads, int heads, int head_columns, int half,
                  const __grid_constant__ TurnsPerPosition turns, float direction, const T* bias, T* qkv) {
  auto* const cosine = static_cast<float*>(dynamic_shared());
  float* const sine = cosine + half;
  const int me = static_cast<int>(threadIdx.x), all = static_cast<int>(blockDim.x);
  const int packs = half / N, columns = heads * head_columns;
  const int whole_heads =
      2 * half < head_columns ? 0 : rotated_heads;  // heads whose every element is rotated
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const double position = static_cast<double>(positions.of(row));
    for (int i = me; i < half; i += all) {
      const double angle = position * turns.of[i];
      float s, c;
      sincospif(2.0F * static_cast<float>(angle - rint(angle)), &s, &c);
      cosine[i] = c;
      sine[i] = direction * s;
    }
    __syncthreads();
    T* const at = qkv + row * columns;
    for (int p = me; p < rotated_heads * packs; p += all) {
      const int head = p / packs, i = p % packs * N, first = head * head_columns + i, second = first + half;
      Values<N> a = load<N>(at + first), b = load<N>(at + second);
      if (bias != nullptr) {
        const Values<N> bias_a = load<N>(bias + first), bias_b = load<N>(bias + second);
#pragma unroll
        for (int k = 0; k < N; ++k) {
          a.at[k] += bias_a.at[k];
          b.at[k] += bias_b.at[k];
        }
      }
      Values<N> turned_a, turned_b;
#pragma unroll
      for (int k = 0; k < N; ++k) {
        turned_a.at[k] = a.at[k] * cosine[i + k] - b.at[k] * sine[i + k];
        turned_b.at[k] = b.at[k] * cosine[i + k] + a.at[k] * sine[i + k];
      }
      store(at + first, turned_a);
      store(at + second, turned_b);
    }
    if (bias != nullptr) {  // values, and what is not rotated, get only their bias
      for (int i = whole_heads * head_columns + me * N; i < columns; i += all * N) {
        if (i < rotated_heads * head_columns && i % head_columns < 2 * half) continue;
        Values<N> v = load<N>(at + i);
        const Values<N> add = load<N>(bias + i);
#pragma unroll
        for (int k = 0; k < N; ++k) v.at[k] += add.at[k];
        store(at + i, v);
      }
    }
    __syncthreads();
  }
}

// Adds `bias` (which may be empty) to qkv and rotates q and k by `direction` (1 or −1) times their angles.
template <typename T>
void rotate(Stream& stream, const AttentionShape& shape, double theta, float direction,
            const TensorView& bias, const TensorView& qkv) {
  if (qkv.elements() == 0) return;
  const int half = shape.rotated() / 2, rotated = shape.q_heads + shape.kv_heads;
  TurnsPerPosition turns{};
  for (int i = 0; i < half; ++i)
    turns.of[i] = std::pow(theta, -2.0 * i / shape.rotated()) / (2 * std::numbers::pi);
  const size_t shared = 2 * static_cast<size_t>(half) * sizeof(float);
  by_width<T>(std::gcd(half, shape.head_dim), [&](auto width) {
    const auto kernel = rotate_kernel<T, width>;
    start(stream, kernel,
          row_shape(kernel, shape.tokens(), int64_t{rotated} * (half / width), kRopeThreads, shared),
          shape.tokens(), Positions{shape.seq, shape.cp, shape.cp_index}, rotated, rotated + shape.kv_heads,
          shape.head_dim, half, turns, direction, data<T>(bias), data<T>(qkv));
  });
}

}  // namespace

void CudaKernels::run(Stream& stream, const kernel::BiasRopeForward& k) {
  expect_columns(k.name, k.qkv.columns);
  expect_head(k.name, k.shape);
  with_type(k, [&]<typename T>(T) { rotate<T>(stream, k.shape, k.theta, 1, k.bias, k.qkv); });
}

void CudaKernels::run(Stream& stream, const kernel::RopeBackward& k) {
  expect_columns(k.name, k.qkv_gradient.columns);
  expect_head(k.name, k.shape);
  with_type(k, [&]<typename T>(T) { rotate<T>(stream, k.shape, k.theta, -1, {}, k.qkv_gradient); });
}

}  // namespace stp::cuda
