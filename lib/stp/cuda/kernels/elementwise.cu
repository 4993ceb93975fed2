// Kernels that read each element once: fill, scale, add_rows, check_finite, add_bias, SwiGLU and other
// activations.
#include "stp/cuda/kernels/cuda_kernels.h"
#include "stp/cuda/kernels/device.cuh"
#include "stp/device/bfloat16.h"
#include "stp/device/element_type.h"

namespace stp::cuda {
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

template <typename T, int N>
__global__ void add_kernel(int64_t count, const T* in, T* out) {
  for_each_pack<N>(count, [&](auto width, int64_t i) {
    const Values<width> x = load<width>(in + i);
    Values<width> sum = load<width>(out + i);
#pragma unroll
    for (int k = 0; k < width; ++k) sum.at[k] += x.at[k];
    store(out + i, sum);
  });
}

__global__ void add_doubles_kernel(int64_t count, const double* in, double* out) {
  for_each_pack<1>(count, [&](auto, int64_t i) { out[i] += in[i]; });
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
  if (!finite) *flag = mark;  // any thread's write may be last: all write the same
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

template <typename T, int N>
__global__ void add_bias_kernel(int64_t rows, int columns, float factor, const T* bias, T* x) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x) * N;
  if (i >= columns) return;
  const Values<N> add = load<N>(bias + i);
  for (int64_t row = blockIdx.y; row < rows; row += gridDim.y) {
    Values<N> v = load<N>(x + row * columns + i);
#pragma unroll
    for (int k = 0; k < N; ++k) v.at[k] += factor * add.at[k];
    store(x + row * columns + i, v);
  }
}

// The functions of kernel::Pointwise, and their derivatives.
struct Gelu {
  static constexpr float kRootOfHalf = 0.70710678118654752F, kDensityAtZero = 0.39894228040143268F;
  __device__ static float normal(float x) { return 0.5F * (1.0F + erff(x * kRootOfHalf)); }
  __device__ static float value(float x) { return x * normal(x); }
  __device__ static float derivative(float x) { return normal(x) + x * kDensityAtZero * expf(-0.5F * x * x); }
};
struct GeluTanh {
  static constexpr float kScale = 0.79788456080286536F, kCubic = 0.044715F;
  __device__ static float tanh_of(float x) { return tanhf(kScale * (x + kCubic * x * x * x)); }
  __device__ static float value(float x) { return 0.5F * x * (1.0F + tanh_of(x)); }
  __device__ static float derivative(float x) {
    const float t = tanh_of(x);
    return 0.5F * (1.0F + t) + 0.5F * x * (1.0F - t * t) * kScale * (1.0F + 3.0F * kCubic * x * x);
  }
};
struct SquaredRelu {
  __device__ static float value(float x) { return x > 0.0F ? x * x : 0.0F; }
  __device__ static float derivative(float x) { return x > 0.0F ? 2.0F * x : 0.0F; }
};

template <typename Function, typename T>
__global__ void activation_forward_kernel(int64_t count, const T* x, T* out) {
  for_each_pack<kPack<T>>(count, [&](auto width, int64_t i) {
    Values<width> v = load<width>(x + i);
#pragma unroll
    for (int k = 0; k < width; ++k) v.at[k] = Function::value(v.at[k]);
    store(out + i, v);
  });
}

template <typename Function, typename T>
__global__ void activation_backward_kernel(int64_t count, const T* x, const T* gradient, T* x_gradient) {
  for_each_pack<kPack<T>>(count, [&](auto width, int64_t i) {
    Values<width> d = load<width>(gradient + i);
    const Values<width> v = load<width>(x + i);
#pragma unroll
    for (int k = 0; k < width; ++k) d.at[k] *= Function::derivative(v.at[k]);
    store(x_gradient + i, d);
  });
}

}  // namespace

void CudaKernels::run(Stream& stream, const kernel::AddBias& k) {
  with_rows(k, k.x, [&]<typename T>(T) {
    by_width<T>(k.x.columns, [&](auto width) {
      const auto kernel = add_bias_kernel<T, width>;
      start(stream, kernel, tile_shape(kernel, k.x.rows, k.x.columns / width), k.x.rows,
            static_cast<int>(k.x.columns), static_cast<float>(k.factor), data<T>(k.bias), data<T>(k.x));
    });
  });
}

void CudaKernels::run(Stream& stream, const kernel::ActivationForward& k) {
  const int64_t count = k.x.elements();
  with_type(k, [&]<typename T>(T) {
    if (count == 0) return;
    kernel::with_function<Gelu, GeluTanh, SquaredRelu>(k.function, [&]<typename Function>(Function) {
      const auto kernel = activation_forward_kernel<Function, T>;
      start(stream, kernel, flat_shape(kernel, divide_up<int64_t>(count, kPack<T>)), count, data<T>(k.x),
            data<T>(k.out));
    });
  });
}

void CudaKernels::run(Stream& stream, const kernel::ActivationBackward& k) {
  const int64_t count = k.x.elements();
  with_type(k, [&]<typename T>(T) {
    if (count == 0) return;
    kernel::with_function<Gelu, GeluTanh, SquaredRelu>(k.function, [&]<typename Function>(Function) {
      const auto kernel = activation_backward_kernel<Function, T>;
      start(stream, kernel, flat_shape(kernel, divide_up<int64_t>(count, kPack<T>)), count, data<T>(k.x),
            data<T>(k.out_gradient), data<T>(k.x_gradient));
    });
  });
}

void CudaKernels::run(Stream& stream, const kernel::Fill& k) {
  const auto bytes = static_cast<int64_t>(k.tensor.bytes());
  if (bytes == 0) return;
  unsigned char pattern[16];
  with_element<Bfloat16>(k.tensor.type, k.name, [&](auto zero) {
    using T = decltype(zero);
    const T element(static_cast<Wide<T>>(k.value));
    for (size_t at = 0; at < sizeof pattern; at += sizeof element)
      memcpy(pattern + at, &element, sizeof element);
  });
  uint4 pack;
  memcpy(&pack, pattern, sizeof pack);
  // One block at least: it writes the bytes after the last pack.
  start(stream, fill_kernel, flat_shape(fill_kernel, std::max<int64_t>(bytes / 16, 1)), bytes / 16, bytes,
        pack, data<std::byte>(k.tensor));
}

void CudaKernels::run(Stream& stream, const kernel::Scale& k) {
  with_type(k, [&]<typename T>(T) {
    const auto kernel = scale_kernel<T>;
    const int64_t count = k.in.elements();
    if (count == 0) return;
    start(stream, kernel, flat_shape(kernel, divide_up<int64_t>(count, kPack<T>)), count,
          static_cast<float>(k.factor), data<T>(k.in), data<T>(k.out));
  });
}

void CudaKernels::run(Stream& stream, const kernel::AddRows& k) {
  const int64_t count = k.in.elements();
  if (count == 0) return;
  if (k.in.type == DType::f64)  // sums of squares
    return start(stream, add_doubles_kernel, flat_shape(add_doubles_kernel, count), count, data<double>(k.in),
                 data<double>(k.out) + k.first * k.out.columns);
  with_type(k, [&]<typename T>(T) {
    by_width<T>(k.in.columns, [&](auto width) {  // else the first row need not be aligned
      const auto kernel = add_kernel<T, width>;
      start(stream, kernel, flat_shape(kernel, divide_up<int64_t>(count, width)), count, data<T>(k.in),
            data<T>(k.out) + k.first * k.out.columns);
    });
  });
}

void CudaKernels::run(Stream& stream, const kernel::CheckFinite& k) {
  const int64_t count = k.tensor.elements();
  if (count == 0) return;
  const auto [flag, mark] = alarm(stream, k.what + " is not finite");
  with_element<bf16>(k.tensor.type, k.name, [&](auto zero) {
    using T = decltype(zero);
    const auto kernel = check_finite_kernel<T>;
    start(stream, kernel, flat_shape(kernel, divide_up<int64_t>(count, kPack<T>)), count, data<T>(k.tensor),
          mark, flag);
  });
}

void CudaKernels::run(Stream& stream, const kernel::SwigluForward& k) {
  with_rows(k, k.gate_up, [&]<typename T>(T) {
    by_width<T>(k.out.columns, [&](auto width) {
      const auto kernel = swiglu_forward_kernel<T, width>;
      start(stream, kernel, tile_shape(kernel, k.out.rows, k.out.columns / width), k.out.rows,
            static_cast<int>(k.out.columns), data<T>(k.gate_up), data<T>(k.out));
    });
  });
}

void CudaKernels::run(Stream& stream, const kernel::SwigluBackward& k) {
  const TensorView& g = k.out_gradient;
  with_rows(k, k.gate_up, [&]<typename T>(T) {
    by_width<T>(g.columns, [&](auto width) {
      const auto kernel = swiglu_backward_kernel<T, width>;
      start(stream, kernel, tile_shape(kernel, g.rows, g.columns / width), g.rows,
            static_cast<int>(g.columns), data<T>(k.gate_up), data<T>(g), data<T>(k.gate_up_gradient));
    });
  });
}

bool has_code_for_device() {
  cudaFuncAttributes attributes{};
  const bool found = cudaFuncGetAttributes(&attributes, address_of(fill_kernel)) == cudaSuccess;
  static_cast<void>(cudaGetLastError());  // forgets a refusal
  return found;
}

}  // namespace stp::cuda
