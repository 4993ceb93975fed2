// Collectives of ranks that share a GPU: every buffer is in reach, so each element is read once from each
// member and written once to each.
#include "stp/cuda/kernels/local_reduce.h"

#include "stp/cuda/kernels/device.cuh"
#include "stp/device/element_type.h"

namespace stp::cuda {
namespace {

// The kernels run beside the ranks' compute streams and leave them most of the GPU.
constexpr unsigned kMostBlocks = 64;

template <typename... Parameters>
LaunchShape modest_shape(void (*kernel)(Parameters...), int64_t packs) {
  LaunchShape shape = flat_shape(kernel, packs);
  shape.blocks.x = std::min(shape.blocks.x, kMostBlocks);
  return shape;
}

struct Larger {
  template <typename V>
  __device__ V operator()(V a, V b) const {
    return a < b ? b : a;
  }
};

// Elements in the type of their sums. Packs have 16 bytes. Doubles, which exist only for exactness, go one by
// one.
template <int N>
struct Doubles {
  double at[N];
};
template <typename T>
inline constexpr int kWidth = std::is_same_v<T, double> ? 1 : kPack<T>;

template <int N, typename T>
__device__ auto load_wide(const T* from) {
  if constexpr (std::is_same_v<T, double>) {
    static_assert(N == 1);
    return Doubles<1>{*from};
  } else {
    return load<N>(from);
  }
}
template <int N, typename T, typename Wide>
__device__ void store_wide(T* to, const Wide& values) {
  if constexpr (std::is_same_v<T, double>) {
    *to = values.at[0];
  } else {
    store(to, values);
  }
}

/// Reduces elements [at, at + N) of all members.
template <int N, typename T, typename Op>
__device__ auto reduced(const LocalBuffers& buffers, int64_t at) {
  auto total = load_wide<N>(static_cast<const T*>(buffers.in[0]) + at);
  for (int member = 1; member < buffers.members; ++member) {
    const auto next = load_wide<N>(static_cast<const T*>(buffers.in[member]) + at);
#pragma unroll
    for (int i = 0; i < N; ++i) total.at[i] = Op{}(total.at[i], next.at[i]);
  }
  return total;
}

template <typename T, typename Op>
__global__ void all_reduce_kernel(const __grid_constant__ LocalBuffers buffers, int64_t elements) {
  for_each_pack<kWidth<T>>(elements, [&](auto width, int64_t at) {
    const auto total = reduced<width, T, Op>(buffers, at);
    for (int member = 0; member < buffers.members; ++member)
      store_wide<width>(static_cast<T*>(buffers.out[member]) + at, total);
  });
}

// `elements` of a piece are divisible by N: no pack spans two pieces.
template <typename T, int N, typename Op>
__global__ void reduce_scatter_kernel(const __grid_constant__ LocalBuffers buffers, int64_t elements) {
  for_each_pack<N>(buffers.members * elements, [&](auto width, int64_t at) {
    const auto total = reduced<width, T, Op>(buffers, at);
    store_wide<width>(static_cast<T*>(buffers.out[at / elements]) + at % elements, total);
  });
}

/// Calls work(T{}, Op{}).
template <typename Work>
void by_reduction(DType type, Reduce reduce, Work work) {
  with_element<bf16>(type, "no reduction", [&](auto zero) {
    if (reduce == Reduce::sum) {
      work(zero, Sum{});
    } else {
      work(zero, Larger{});
    }
  });
}

}  // namespace

void local_all_reduce(Stream& stream, Reduce reduce, DType type, const LocalBuffers& buffers,
                      int64_t elements) {
  if (elements == 0) return;
  by_reduction(type, reduce, [&]<typename T, typename Op>(T, Op) {
    const auto kernel = all_reduce_kernel<T, Op>;
    start(stream, kernel, modest_shape(kernel, divide_up<int64_t>(elements, kWidth<T>)), buffers, elements);
  });
}

void local_reduce_scatter(Stream& stream, Reduce reduce, DType type, const LocalBuffers& buffers,
                          int64_t elements) {
  if (elements == 0) return;
  by_reduction(type, reduce, [&]<typename T, typename Op>(T, Op) {
    const auto kernel =
        elements % kWidth<T> == 0 ? reduce_scatter_kernel<T, kWidth<T>, Op> : reduce_scatter_kernel<T, 1, Op>;
    const int64_t packs = buffers.members * divide_up<int64_t>(elements, kWidth<T>);
    start(stream, kernel, modest_shape(kernel, packs), buffers, elements);
  });
}

}  // namespace stp::cuda
