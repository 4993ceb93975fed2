// Kernels that look at each element once: fill, scale, check_finite, SwiGLU.
#include "stp/cuda/device.cuh"
#include "stp/cuda/launch.h"

namespace stp::cuda::launch {
namespace {

__global__ void fill_kernel(int64_t packs, int64_t bytes, uint4 pattern, void* to) {
  const int64_t me = int64_t{blockIdx.x} * blockDim.x + threadIdx.x, all = int64_t{gridDim.x} * blockDim.x;
  auto* const at = static_cast<unsigned char*>(to);
  for (int64_t i = me; i < packs; i += all) store_16(at + i * 16, pattern);
  unsigned char part[16];
  memcpy(part, &pattern, sizeof part);
  if (me < bytes % 16) at[packs * 16 + me] = part[me];
}

template <typename T>
__global__ void scale_kernel(int64_t count, float factor, const T* in, T* out) {
  for_each_pack<kPack<T>>(count, [&](auto width, int64_t i) {
    Values<width> x = load<width>(in + i);
#pragma unroll
    for (int k = 0; k < width; ++k) x.at[k] *= factor;
    store(out + i, x);
  });
}

template <typename T>
__global__ void check_finite_kernel(int64_t count, const T* values, int32_t mark, int32_t* flag) {
  bool finite = true;
  if constexpr (std::is_same_v<T, double>) {
    for_each_pack<1>(count, [&](auto, int64_t i) { finite = finite && isfinite(values[i]); });
  } else {
    for_each_pack<kPack<T>>(count, [&](auto width, int64_t i) {
      const Values<width> x = load<width>(values + i);
#pragma unroll
      for (int k = 0; k < width; ++k) finite = finite && isfinite(x.at[k]);
    });
  }
  if (!finite) *flag = mark;  // whichever thread's write is last: they write the same
}

__device__ inline float sigmoid(float x) { return 1.0F / (1.0F + expf(-x)); }

template <typename T, int N>
__global__ void swiglu_forward_kernel(int64_t rows, int columns, const T* gate_up, T* out) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x) * N;
  if (i >= columns) return;
  for (int64_t row = blockIdx.y; row < rows; row += gridDim.y) {
    const T* gate = gate_up + row * 2 * columns + i;
    Values<N> g = load<N>(gate);
    const Values<N> up = load<N>(gate + columns);
#pragma unroll
    for (int k = 0; k < N; ++k) g.at[k] *= sigmoid(g.at[k]) * up.at[k];
    store(out + row * columns + i, g);
  }
}

template <typename T, int N>
__global__ void swiglu_backward_kernel(int64_t rows, int columns, const T* gate_up, const T* gradient,
                                       T* gate_up_gradient) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x) * N;
  if (i >= columns) return;
  for (int64_t row = blockIdx.y; row < rows; row += gridDim.y) {
    const T* gate = gate_up + row * 2 * columns + i;
    const Values<N> g = load<N>(gate), up = load<N>(gate + columns);
    const Values<N> d = load<N>(gradient + row * columns + i);
    Values<N> gate_gradient, up_gradient;
#pragma unroll
    for (int k = 0; k < N; ++k) {
      const float s = sigmoid(g.at[k]), silu = g.at[k] * s;
      up_gradient.at[k] = d.at[k] * silu;
      gate_gradient.at[k] = d.at[k] * up.at[k] * (s + silu * (1.0F - s));
    }
    T* to = gate_up_gradient + row * 2 * columns + i;
    store(to, gate_gradient);
    store(to + columns, up_gradient);
  }
}

}  // namespace

void fill(cudaStream_t stream, void* to, size_t bytes, const void* element, size_t size) {
  if (bytes == 0) return;
  unsigned char part[16];
  for (size_t at = 0; at < sizeof part; at += size) memcpy(part + at, element, size);
  uint4 pattern;
  memcpy(&pattern, part, sizeof part);
  const auto packs = static_cast<int64_t>(bytes / 16);
  // One block at least: it writes the bytes after the last pack.
  start(fill_kernel, flat_shape(fill_kernel, std::max<int64_t>(packs, 1)), stream, packs,
        static_cast<int64_t>(bytes), pattern, to);
}

template <typename T>
void scale(cudaStream_t stream, int64_t count, double factor, const T* in, T* out) {
  if (count == 0) return;
  start(scale_kernel<T>, flat_shape(scale_kernel<T>, divide_up<int64_t>(count, kPack<T>)), stream, count,
        static_cast<float>(factor), in, out);
}

template <typename T>
void check_finite(cudaStream_t stream, int64_t count, const T* values, int32_t mark, int32_t* flag) {
  if (count == 0) return;
  start(check_finite_kernel<T>, flat_shape(check_finite_kernel<T>, divide_up<int64_t>(count, kPack<T>)),
        stream, count, values, mark, flag);
}

template <typename T>
void swiglu_forward(cudaStream_t stream, int64_t rows, int64_t columns, const T* gate_up, T* out) {
  if (rows * columns == 0) return;
  by_width<T>(columns, [&](auto width) {
    const auto kernel = swiglu_forward_kernel<T, width>;
    start(kernel, tile_shape(kernel, rows, columns / width), stream, rows, static_cast<int>(columns), gate_up,
          out);
  });
}

template <typename T>
void swiglu_backward(cudaStream_t stream, int64_t rows, int64_t columns, const T* gate_up, const T* gradient,
                     T* gate_up_gradient) {
  if (rows * columns == 0) return;
  by_width<T>(columns, [&](auto width) {
    const auto kernel = swiglu_backward_kernel<T, width>;
    start(kernel, tile_shape(kernel, rows, columns / width), stream, rows, static_cast<int>(columns), gate_up,
          gradient, gate_up_gradient);
  });
}

#define STP_INSTANTIATE(T)                                                        \
  template void scale(cudaStream_t, int64_t, double, const T*, T*);               \
  template void check_finite(cudaStream_t, int64_t, const T*, int32_t, int32_t*); \
  template void swiglu_forward(cudaStream_t, int64_t, int64_t, const T*, T*);     \
  template void swiglu_backward(cudaStream_t, int64_t, int64_t, const T*, const T*, T*)
STP_INSTANTIATE(float);
STP_INSTANTIATE(bf16);
#undef STP_INSTANTIATE
template void check_finite(cudaStream_t, int64_t, const double*, int32_t, int32_t*);

}  // namespace stp::cuda::launch
