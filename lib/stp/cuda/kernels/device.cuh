// Tools of the kernels: packs of 16 bytes, sums and maxima over warps and blocks, launch shapes.
#pragma once

#ifdef STP_KERNELS_ON_HOST
#include "support/simt.h"
#else
#include "stp/cuda/kernels/target.cuh"
#endif

#include <cuda_bf16.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace stp::cuda {

using bf16 = __nv_bfloat16;

inline constexpr int kWarp = 32;
inline constexpr unsigned kAllLanes = 0xffffffff;

template <typename I>
__host__ __device__ constexpr I divide_up(I a, I b) {
  return (a + b - 1) / b;
}

// Elements, and packs of N of them in registers as float32.

__device__ inline float word_as_float(uint32_t word) {
  float value;
  memcpy(&value, &word, sizeof value);
  return value;
}
__device__ inline uint32_t float_as_word(float value) {
  uint32_t word;
  memcpy(&word, &value, sizeof word);
  return word;
}
/// Two bf16, the first in the lower half.
__device__ inline uint32_t pack_two(float first, float second) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(first, second);
  uint32_t word;
  memcpy(&word, &pair, sizeof word);
  return word;
}

__device__ inline float to_float(float value) { return value; }
__device__ inline float to_float(bf16 value) { return __bfloat162float(value); }
template <typename T>
__device__ T from_float(float value) {
  if constexpr (std::is_same_v<T, bf16>) {
    return __float2bfloat16_rn(value);
  } else {
    return value;
  }
}

template <int N>
struct Values {
  float at[N];
};
/// A number as a type. (std::integral_constant's conversion is no device function.)
template <int N>
struct Width {
  __host__ __device__ constexpr operator int() const { return N; }  // NOLINT(google-explicit-constructor)
};

/// Elements of T in 16 bytes. Kernels use this width if the rows are divisible by it, else width 1.
template <typename T>
inline constexpr int kPack = 16 / sizeof(T);

template <int N, typename T>
__device__ Values<N> load(const T* from) {
  Values<N> values;
  if constexpr (N == 1) {
    values.at[0] = to_float(*from);
  } else {
    constexpr int kEach = kPack<T>;
    static_assert(N % kEach == 0);
#pragma unroll
    for (int i = 0; i < N; i += kEach) {
      const uint4 loaded = load_16(from + i);
      const uint32_t words[4] = {loaded.x, loaded.y, loaded.z, loaded.w};
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        if constexpr (std::is_same_v<T, bf16>) {  // a bf16 is the upper half of a float32
          values.at[i + 2 * j] = word_as_float(words[j] << 16);
          values.at[i + 2 * j + 1] = word_as_float(words[j] & 0xffff0000);
        } else {
          values.at[i + j] = word_as_float(words[j]);
        }
      }
    }
  }
  return values;
}

template <int N, typename T>
__device__ void store(T* to, const Values<N>& values) {
  if constexpr (N == 1) {
    *to = from_float<T>(values.at[0]);
  } else {
    constexpr int kEach = kPack<T>;
    static_assert(N % kEach == 0);
#pragma unroll
    for (int i = 0; i < N; i += kEach) {
      uint32_t words[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        if constexpr (std::is_same_v<T, bf16>) {
          words[j] = pack_two(values.at[i + 2 * j], values.at[i + 2 * j + 1]);
        } else {
          words[j] = float_as_word(values.at[i + j]);
        }
      }
      store_16(to + i, make_uint4(words[0], words[1], words[2], words[3]));
    }
  }
}

/// Calls body(Width<n>, i) for all threads of a grid together: once for each N elements, then one by one.
template <int N, typename Body>
__device__ void for_each_pack(int64_t count, Body body) {
  const int64_t me = int64_t{blockIdx.x} * blockDim.x + threadIdx.x, all = int64_t{gridDim.x} * blockDim.x;
  const int64_t packed = count / N * N;
  for (int64_t i = me * N; i < packed; i += all * N) body(Width<N>{}, i);
  for (int64_t i = packed + me; i < count; i += all) body(Width<1>{}, i);
}

// Reductions. Every order of additions is fixed by the launch shape.

struct Sum {
  template <typename V>
  __device__ V operator()(V a, V b) const {
    return a + b;
  }
};
struct Maximum {
  __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
};

/// Reduces over `kLanes` neighbouring lanes. All of them get the result.
template <int kLanes, typename V, typename Op>
__device__ V reduce_lanes(V value, Op op) {
#pragma unroll
  for (int distance = kLanes / 2; distance > 0; distance /= 2)
    value = op(value, __shfl_xor_sync(kAllLanes, value, distance));
  return value;
}

/// Reduces over a one-dimensional block of whole warps. All threads must call it, and all get the result. It
/// has barriers before and after the write to shared memory, so calls may follow each other.
template <typename V, typename Op>
__device__ V reduce_block(V value, Op op, V neutral) {
  __shared__ V of_warp[kWarp];
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp;
  const int warps = static_cast<int>(blockDim.x) / kWarp;
  value = reduce_lanes<kWarp>(value, op);
  __syncthreads();
  if (lane == 0) of_warp[warp] = value;
  __syncthreads();
  return reduce_lanes<kWarp>(lane < warps ? of_warp[lane] : neutral, op);
}

// Launch shapes.

/// Calls work(Width<kPack<T>>) if rows of `columns` elements divide into packs, else work(Width<1>).
template <typename T, typename Work>
void by_width(int64_t columns, Work work) {
  if (columns % kPack<T> == 0) {
    work(Width<kPack<T>>{});
  } else {
    work(Width<1>{});
  }
}

inline unsigned narrow(int64_t value) { return static_cast<unsigned>(value); }

template <typename... Parameters>
int64_t resident(void (*kernel)(Parameters...), int threads, size_t shared = 0) {
  return resident_blocks(address_of(kernel), threads, shared);
}

/// One wave of blocks that share `packs` pieces of work. CUDA refuses a kernel with lower launch bounds.
inline constexpr int kFlatThreads = 256;
template <typename... Parameters>
LaunchShape flat_shape(void (*kernel)(Parameters...), int64_t packs) {
  const int64_t wanted = divide_up<int64_t>(packs, kFlatThreads);
  return {narrow(std::min(wanted, resident(kernel, kFlatThreads))), kFlatThreads};
}

/// One block per row at a time, and at most one wave of blocks. At most `most` threads share a row's `packs`
/// evenly.
inline int threads_for_row(int64_t packs, int most) {
  const int64_t turns = divide_up<int64_t>(packs, most);
  return static_cast<int>(divide_up<int64_t>(divide_up(packs, turns), kWarp) * kWarp);
}
template <typename... Parameters>
LaunchShape row_shape(void (*kernel)(Parameters...), int64_t rows, int64_t packs, int most_threads,
                      size_t shared = 0) {
  const int threads = threads_for_row(packs, most_threads);
  return {narrow(std::min(rows, resident(kernel, threads, shared))), narrow(threads), shared};
}

/// Rows along y, a row's packs along x: at most one wave of blocks, or one block per piece of a row.
template <typename... Parameters>
LaunchShape tile_shape(void (*kernel)(Parameters...), int64_t rows, int64_t packs) {
  constexpr int kMost = 256;
  const int threads = threads_for_row(packs, kMost);
  const int64_t across = divide_up<int64_t>(packs, threads);
  const int64_t down = std::clamp<int64_t>(resident(kernel, threads) / across, 1, 65535);
  return {dim3(narrow(across), narrow(std::min(rows, down))), narrow(threads)};
}

}  // namespace stp::cuda
