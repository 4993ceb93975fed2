// Grouped-query attention in float32 on the CUDA cores: for parity in float32, and for heads that the tensor
// cores' kernels do not support. A block has kPlainTile queries (or keys) of one head, and passes through the
// keys (or queries) in tiles of a warp's width. A lane handles one of them for scores, and one column of the
// head for sums of rows. No sum crosses blocks, so its order is fixed.
#include <cmath>

#include "stp/cuda/kernels/attention.h"
#include "stp/cuda/kernels/cuda_kernels.h"
#include "stp/cuda/kernels/device.cuh"

namespace stp::cuda {
namespace {

constexpr int kPlainWarps = 4;
constexpr int kRowsPerWarp = 4;
constexpr int kPlainTile = kPlainWarps * kRowsPerWarp;  // rows that a block owns
constexpr int kStrips = kMaxHeadDim / kWarp;            // columns of a head per lane
constexpr int kPlainThreads = kPlainWarps * kWarp;

// A tile of rows of one head in shared memory, as float32. Rows are an odd number of words apart, so lanes
// that read one column of neighbouring rows use different banks.
struct Rows {
  float* at;
  int stride;
  __device__ const float* row(int i) const { return at + i * stride; }
};
__host__ __device__ int odd(int columns) { return columns | 1; }
size_t rows_bytes(int rows, int head_dim) {
  return static_cast<size_t>(rows) * static_cast<size_t>(odd(head_dim)) * sizeof(float);
}

// Rows [first, first + rows) of a matrix; `from` points to the head's first column in row 0. Zeros from `seq`
// on.
template <typename T>
__device__ void load_rows(const AttentionLayout& layout, const T* from, int64_t stride, int first, int rows,
                          Rows to) {
  for (int i = static_cast<int>(threadIdx.x); i < rows * layout.head_dim; i += kPlainThreads) {
    const int row = i / layout.head_dim, column = i % layout.head_dim;
    to.at[row * to.stride + column] =
        first + row < layout.seq ? to_float(from[(first + row) * stride + column]) : 0.0F;
  }
}

__device__ float dot(const float* a, const float* b, int count) {
  float sum = 0;
  for (int i = 0; i < count; ++i) sum += a[i] * b[i];
  return sum;
}

// One lane's columns (lane, lane + 32, …) of one row.
struct Strip {
  float at[kStrips];
};
// strip += weight of lane j · row j of the tile, over all lanes
__device__ void add_rows(Strip& strip, float weight, const Rows& tile, int head_dim) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const LaneValues<float> weights{weight};
  for (int j = 0; j < kWarp; ++j) {
    const float w = weights[j];
    const float* const row = tile.row(j);
#pragma unroll
    for (int s = 0; s < kStrips; ++s)
      if (s * kWarp + lane < head_dim) strip.at[s] += w * row[s * kWarp + lane];
  }
}
template <typename T>
__device__ void load_strip(Strip& strip, float factor, const T* from, int head_dim) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
  for (int s = 0; s < kStrips; ++s)
    if (s * kWarp + lane < head_dim) strip.at[s] = to_float(from[s * kWarp + lane]) * factor;
}
template <typename T>
__device__ void store_strip(const Strip& strip, float factor, T* to, int head_dim) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
  for (int s = 0; s < kStrips; ++s)
    if (s * kWarp + lane < head_dim) to[s * kWarp + lane] = from_float<T>(strip.at[s] * factor);
}

template <typename T>
__global__ void __launch_bounds__(kPlainThreads)
    attention_forward_kernel(AttentionLayout layout, AttentionForward<T> on) {
  const int d = layout.head_dim, lane = static_cast<int>(threadIdx.x) % kWarp;
  const int own = static_cast<int>(threadIdx.x) / kWarp * kRowsPerWarp;  // first row of this warp in the tile
  const int first = layout.first_query + static_cast<int>(blockIdx.x) * kPlainTile;
  const int head = static_cast<int>(blockIdx.y);
  const int64_t sample = int64_t{blockIdx.z} * layout.seq;
  const T* const keys = on.kv + sample * layout.kv_stride + head / layout.group * d;
  T* const out = on.out + sample * layout.out_stride + head * d;
  float* const log_sum_exp = on.log_sum_exp + sample * layout.q_heads + head;
  const Rows q{static_cast<float*>(dynamic_shared()), odd(d)};
  const Rows k{q.at + kPlainTile * q.stride, q.stride}, v{k.at + kWarp * k.stride, k.stride};
  load_rows(layout, on.qkv + sample * layout.stride + head * d, layout.stride, first, kPlainTile, q);

  float maximum[kRowsPerWarp], sum[kRowsPerWarp];
  Strip result[kRowsPerWarp] = {};
#pragma unroll
  for (int r = 0; r < kRowsPerWarp; ++r) {
    const int query = first + own + r;
    const bool merge = !layout.causal && query < layout.seq;
    // The earlier result counts as one more key.
    maximum[r] = merge ? log_sum_exp[query * layout.q_heads] : -INFINITY;
    sum[r] = merge ? 1.0F : 0.0F;
    if (merge) load_strip(result[r], 1.0F, out + query * layout.out_stride, d);
  }
  const int end = key_end(layout, first, kPlainTile);
  for (int key = 0; key < end; key += kWarp) {
    __syncthreads();  // all threads have finished the previous tiles
    load_rows(layout, keys + layout.k_column, layout.kv_stride, key, kWarp, k);
    load_rows(layout, keys + layout.v_column, layout.kv_stride, key, kWarp, v);
    __syncthreads();
#pragma unroll
    for (int r = 0; r < kRowsPerWarp; ++r) {
      if (first + own + r >= layout.seq) continue;
      const bool seen = key + lane <= last_key(layout, first + own + r);
      const float score = seen ? dot(q.row(own + r), k.row(lane), d) * layout.scale : -INFINITY;
      const float largest = fmaxf(maximum[r], reduce_lanes<kWarp>(score, Maximum{}));
      if (largest == -INFINITY) continue;  // this tile and earlier tiles have no visible key
      const float shrink = expf(maximum[r] - largest), weight = expf(score - largest);
      maximum[r] = largest;
      sum[r] = sum[r] * shrink + reduce_lanes<kWarp>(weight, Sum{});
#pragma unroll
      for (int s = 0; s < kStrips; ++s) result[r].at[s] *= shrink;
      add_rows(result[r], weight, v, d);
    }
  }
#pragma unroll
  for (int r = 0; r < kRowsPerWarp; ++r) {
    const int query = first + own + r;
    if (query >= layout.seq) continue;
    store_strip(result[r], 1.0F / sum[r], out + query * layout.out_stride, d);
    if (lane == 0) log_sum_exp[query * layout.q_heads] = maximum[r] + logf(sum[r]);
  }
}

// A block owns queries, and sums over keys.
template <typename T>
__global__ void __launch_bounds__(kPlainThreads)
    query_gradient_kernel(AttentionLayout layout, AttentionBackward<T> on) {
  const int d = layout.head_dim, lane = static_cast<int>(threadIdx.x) % kWarp;
  const int own = static_cast<int>(threadIdx.x) / kWarp * kRowsPerWarp;
  const int first = layout.first_query + static_cast<int>(blockIdx.x) * kPlainTile;
  const int head = static_cast<int>(blockIdx.y);
  const int64_t sample = int64_t{blockIdx.z} * layout.seq;
  const T* const keys = on.kv + sample * layout.kv_stride + head / layout.group * d;
  T* const gradients = on.qkv_gradient + sample * layout.stride + head * d;
  const Rows q{static_cast<float*>(dynamic_shared()), odd(d)}, g{q.at + kPlainTile * q.stride, q.stride};
  const Rows k{g.at + kPlainTile * g.stride, g.stride}, v{k.at + kWarp * k.stride, k.stride};
  load_rows(layout, on.qkv + sample * layout.stride + head * d, layout.stride, first, kPlainTile, q);
  load_rows(layout, on.out_gradient + sample * layout.out_stride + head * d, layout.out_stride, first,
            kPlainTile, g);

  float shift[kRowsPerWarp], mean[kRowsPerWarp];
  Strip result[kRowsPerWarp] = {};
#pragma unroll
  for (int r = 0; r < kRowsPerWarp; ++r) {
    const int query = min(first + own + r, layout.seq - 1);  // rows beyond the end are not stored
    shift[r] = on.log_sum_exp[(sample + query) * layout.q_heads + head];
    mean[r] = on.delta[(sample + query) * layout.q_heads + head];
    if (!layout.causal) load_strip(result[r], 1 / layout.scale, gradients + query * layout.stride, d);
  }
  const int end = key_end(layout, first, kPlainTile);
  for (int key = 0; key < end; key += kWarp) {
    __syncthreads();
    load_rows(layout, keys + layout.k_column, layout.kv_stride, key, kWarp, k);
    load_rows(layout, keys + layout.v_column, layout.kv_stride, key, kWarp, v);
    __syncthreads();
#pragma unroll
    for (int r = 0; r < kRowsPerWarp; ++r) {
      if (first + own + r >= layout.seq) continue;
      float gradient = 0;
      if (key + lane <= last_key(layout, first + own + r)) {
        const float weight = expf(dot(q.row(own + r), k.row(lane), d) * layout.scale - shift[r]);
        gradient = weight * (dot(g.row(own + r), v.row(lane), d) - mean[r]);
      }
      add_rows(result[r], gradient, k, d);
    }
  }
#pragma unroll
  for (int r = 0; r < kRowsPerWarp; ++r) {
    const int query = first + own + r;
    if (query < layout.seq) store_strip(result[r], layout.scale, gradients + query * layout.stride, d);
  }
}

// A block owns keys, and sums over the queries of all heads of the group. Keys that no query attends to have
// zero gradients.
template <typename T>
__global__ void __launch_bounds__(kPlainThreads)
    key_value_gradient_kernel(AttentionLayout layout, AttentionBackward<T> on) {
  const int d = layout.head_dim, lane = static_cast<int>(threadIdx.x) % kWarp;
  const int own = static_cast<int>(threadIdx.x) / kWarp * kRowsPerWarp;
  const int first = static_cast<int>(blockIdx.x) * kPlainTile, key_head = static_cast<int>(blockIdx.y);
  const int64_t sample = int64_t{blockIdx.z} * layout.seq;
  const T* const rows = on.qkv + sample * layout.stride;
  const T* const keys = on.kv + sample * layout.kv_stride;
  const int k_column = layout.k_column + key_head * d, v_column = layout.v_column + key_head * d;
  const Rows k{static_cast<float*>(dynamic_shared()), odd(d)}, v{k.at + kPlainTile * k.stride, k.stride};
  const Rows q{v.at + kPlainTile * v.stride, v.stride}, g{q.at + kWarp * q.stride, q.stride};
  load_rows(layout, keys + k_column, layout.kv_stride, first, kPlainTile, k);
  load_rows(layout, keys + v_column, layout.kv_stride, first, kPlainTile, v);

  Strip k_result[kRowsPerWarp] = {}, v_result[kRowsPerWarp] = {};
  const int begin = layout.causal ? first / kWarp * kWarp : layout.first_query;
  for (int head = key_head * layout.group; first < layout.keys && head < (key_head + 1) * layout.group;
       ++head) {
    for (int query = begin; query < layout.seq; query += kWarp) {
      __syncthreads();
      load_rows(layout, rows + head * d, layout.stride, query, kWarp, q);
      load_rows(layout, on.out_gradient + sample * layout.out_stride + head * d, layout.out_stride, query,
                kWarp, g);
      __syncthreads();
      const int mine = query + lane;
      const int64_t at = (sample + min(mine, layout.seq - 1)) * layout.q_heads + head;
      const float shift = on.log_sum_exp[at], mean = on.delta[at];
#pragma unroll
      for (int r = 0; r < kRowsPerWarp; ++r) {
        if (first + own + r >= layout.keys) continue;
        float weight = 0, gradient = 0;
        if (first + own + r <= last_key(layout, mine) && mine < layout.seq) {
          weight = expf(dot(q.row(lane), k.row(own + r), d) * layout.scale - shift);
          gradient = weight * (dot(g.row(lane), v.row(own + r), d) - mean);
        }
        add_rows(v_result[r], weight, g, d);
        add_rows(k_result[r], gradient, q, d);
      }
    }
  }
#pragma unroll
  for (int r = 0; r < kRowsPerWarp; ++r) {
    const int key = first + own + r;
    if (key >= layout.seq) continue;
    T* const to = on.kv_gradient + (sample + key) * layout.kv_stride;
    store_strip(k_result[r], layout.scale, to + k_column, d);
    store_strip(v_result[r], 1.0F, to + v_column, d);
  }
}

// Lanes for one head of a token, with loads of N elements: one load each for 128 elements.
template <int N>
inline constexpr int kDeltaLanes = N == 1 ? kWarp : 128 / N;

template <int N, typename T>
__global__ void __launch_bounds__(kPlainThreads)
    attention_delta_kernel(int64_t pairs, int head_dim, const T* out, const T* out_gradient, float* delta) {
  constexpr int kLanes = kDeltaLanes<N>, kHeads = kWarp / kLanes;  // of a warp
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const int64_t me = (int64_t{blockIdx.x} * kPlainThreads + threadIdx.x) / kLanes;
  const int64_t all = int64_t{gridDim.x} * (kPlainThreads / kLanes);
  // All lanes of a warp take the same turns, because they exchange sums.
  for (int64_t pair = me; pair - me % kHeads < pairs; pair += all) {
    float sum = 0;
    if (pair < pairs) {
#pragma unroll 1  // one turn is usual; registers for more would leave room for fewer warps
      for (int i = lane * N; i < head_dim; i += kLanes * N) {
        const Values<N> o = load<N>(out + pair * head_dim + i),
                        g = load<N>(out_gradient + pair * head_dim + i);
#pragma unroll
        for (int k = 0; k < N; ++k) sum += o.at[k] * g.at[k];
      }
    }
    sum = reduce_lanes<kLanes>(sum, Sum{});
    if (lane == 0 && pair < pairs) delta[pair] = sum;
  }
}

// Copies batch × rows × columns to batch × columns × rows.
__global__ void __launch_bounds__(kFlatThreads)
    transpose_kernel(int64_t count, int rows, int columns, const float* from, float* to) {
  for_each_pack<1>(count, [&](auto, int64_t i) {
    const int64_t row = i / columns % rows, sample = i / columns / rows;
    to[(sample * columns + i % columns) * rows + row] = from[i];
  });
}

void transpose(Stream& stream, int64_t batch, int64_t rows, int64_t columns, const float* from, float* to) {
  const int64_t count = batch * rows * columns;
  if (count == 0) return;
  start(stream, transpose_kernel, flat_shape(transpose_kernel, count), count, static_cast<int>(rows),
        static_cast<int>(columns), from, to);
}

// Blocks of kPlainTile of the `rows` of a sample × heads × samples; the tiles that a block holds take
// `tile_rows` rows in all.
LaunchShape attention_shape(const AttentionShape& shape, int rows, int heads, int tile_rows) {
  return {dim3(narrow(divide_up(rows, kPlainTile)), narrow(heads), narrow(shape.batch)), kPlainThreads,
          rows_bytes(tile_rows, shape.head_dim)};
}

}  // namespace

template <typename T>
void attention_plain_forward(Stream& stream, const AttentionShape& shape, const AttentionLayout& layout,
                             const AttentionForward<T>& on) {
  if (shape.tokens() == 0) return;
  start(stream, attention_forward_kernel<T>,
        attention_shape(shape, shape.seq - layout.first_query, shape.q_heads, kPlainTile + 2 * kWarp), layout,
        on);
}

template <typename T>
void attention_delta(Stream& stream, const AttentionShape& shape, const T* out, const T* out_gradient,
                     float* delta) {
  const int64_t pairs = shape.tokens() * shape.q_heads;
  if (pairs == 0) return;
  by_width<T>(shape.head_dim, [&](auto width) {
    const auto kernel = attention_delta_kernel<width, T>;
    const int64_t wanted = divide_up<int64_t>(pairs * kDeltaLanes<width>, kPlainThreads);
    start(stream, kernel,
          LaunchShape{narrow(std::min(wanted, resident(kernel, kPlainThreads))), kPlainThreads}, pairs,
          shape.head_dim, out, out_gradient, delta);
  });
}

template <typename T>
void attention_plain_backward(Stream& stream, const AttentionShape& shape, const AttentionLayout& layout,
                              const AttentionBackward<T>& on) {
  if (shape.tokens() == 0) return;
  constexpr int kRows = 2 * (kPlainTile + kWarp);
  start(stream, query_gradient_kernel<T>,
        attention_shape(shape, shape.seq - layout.first_query, shape.q_heads, kRows), layout, on);
  start(stream, key_value_gradient_kernel<T>, attention_shape(shape, shape.seq, shape.kv_heads, kRows),
        layout, on);
}

void statistics_by_head(Stream& stream, const AttentionShape& shape, const float* by_token, float* by_head) {
  transpose(stream, shape.batch, shape.seq, shape.q_heads, by_token, by_head);
}

void statistics_by_token(Stream& stream, const AttentionShape& shape, const float* by_head, float* by_token) {
  transpose(stream, shape.batch, shape.q_heads, shape.seq, by_head, by_token);
}

#define STP_INSTANTIATE(T)                                                                       \
  template void attention_delta(Stream&, const AttentionShape&, const T*, const T*, float*);     \
  template void attention_plain_forward(Stream&, const AttentionShape&, const AttentionLayout&,  \
                                        const AttentionForward<T>&);                             \
  template void attention_plain_backward(Stream&, const AttentionShape&, const AttentionLayout&, \
                                         const AttentionBackward<T>&)
STP_INSTANTIATE(float);
STP_INSTANTIATE(bf16);
#undef STP_INSTANTIATE

}  // namespace stp::cuda
