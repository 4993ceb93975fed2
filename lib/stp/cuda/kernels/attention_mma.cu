// Grouped-query attention on the tensor cores, after FlashAttention-2 (Dao, 2023): bf16 in and out,
// float32 sums.
//
// A block has four warps and owns kMmaTile rows (queries, or keys for the gradients of keys and values) of
// one head, 16 per warp. Tiles of the other side pass through shared memory. Scores stay in registers: the
// fragment of a tensor core's result is also the fragment of a left factor. Asynchronous copies fetch the
// next tile while the tensor cores work on the current tile.
//
// The backward makes dQ by blocks of queries and dK, dV by blocks of keys: seven GEMMs, since both make the
// scores and their gradients. Five GEMMs in one pass would sum dQ across blocks. The bits of results would
// then differ between runs; or, as in FlashAttention-2's deterministic mode, there would be several float32
// copies of dQ: 0.4 to 0.5 GB on 132 multiprocessors for 6,144 tokens and heads of 128, for any number of
// heads.
//
// Heads shorter than D, the next size with a kernel, are padded with zeros in shared memory.
#include <cmath>
#include <numbers>
#include <stdexcept>

#include "stp/cuda/kernels/attention.h"
#include "stp/cuda/kernels/device.cuh"

namespace stp::cuda {
namespace {

constexpr int kMmaWarps = 4;
constexpr int kMmaThreads = kMmaWarps * kWarp;
constexpr int kRows = 16;                    // rows of a fragment
constexpr int kMmaTile = kMmaWarps * kRows;  // rows that a block owns
// Rows of the other side per step of the backward: their scores and the sums fit into registers, and two
// stages of them fit into the shared memory of one tile.
constexpr int kStage = kMmaTile / 2;

constexpr float kLog2E = std::numbers::log2e_v<float>;

// R rows in shared memory. A row has an odd number of 16-byte pieces, so the eight rows of a matrix that
// load_matrices() fetches are in different banks.
template <int D, int R = kMmaTile>
struct Tile {
  static constexpr int kStride = D + 8;
  bf16 row[R][kStride];
};

// A thread's place in its block and in fragments.
struct Lane {
  int lane = static_cast<int>(threadIdx.x) % kWarp;
  int first_row = static_cast<int>(threadIdx.x) / kWarp * kRows;  // of the warp's rows
  int g = lane / 4, t = lane % 4;
};

// Starts to copy rows [first, first + R) of one head to `tile`. Rows from `seq` on and columns beyond the
// head become zeros.
template <int D, int R>
__device__ void copy_rows(const AttentionLayout& layout, const bf16* head, int64_t stride, int first,
                          Tile<D, R>& tile) {
  constexpr int kPieces = D / 8;  // of 16 bytes, per row
#pragma unroll
  for (int i = 0; i < divide_up(R * kPieces, kMmaThreads); ++i) {
    const int piece = i * kMmaThreads + static_cast<int>(threadIdx.x);
    if (R * kPieces % kMmaThreads != 0 && piece >= R * kPieces) break;
    const int row = piece / kPieces, column = piece % kPieces * 8;
    const bool valid = first + row < layout.seq && column < layout.head_dim;
    copy_16_async(&tile.row[row][column], head + (valid ? (first + row) * stride + column : 0), valid);
  }
}

// The left factor (rows × 16 columns) at (row, column) of a tile.
template <int D>
__device__ void load_left(uint32_t (&a)[4], const Lane& me, const Tile<D>& tile, int row, int column) {
  load_matrices(a, &tile.row[row + me.lane % 16][column + me.lane / 16 * 8]);
}
// Two right factors (16 columns × 8) of the transposed tile: the rows row + [0, 8) and row + [8, 16).
template <int D, int R>
__device__ void load_right_transposed(uint32_t (&b)[4], const Lane& me, const Tile<D, R>& tile, int row,
                                      int column) {
  load_matrices(b, &tile.row[row + me.lane % 8 + me.lane / 16 * 8][column + me.lane / 8 % 2 * 8]);
}
// Two right factors (16 rows × 8) of the tile itself: the columns column + [0, 8) and column + [8, 16).
template <int D, int R>
__device__ void load_right(uint32_t (&b)[4], const Lane& me, const Tile<D, R>& tile, int row, int column) {
  load_matrices_transposed(b, &tile.row[row + me.lane % 16][column + me.lane / 16 * 8]);
}

// 16 rows of a result: fragments side by side, each 8 columns.
template <int kColumns>
using Fragments = float[kColumns / 8][4];

// result += left rows · right rowsᵀ: the warp's rows of `left`, all rows of `right`.
template <int D, int R>
__device__ void multiply_transposed(Fragments<R>& result, const Lane& me, const Tile<D>& left,
                                    const Tile<D, R>& right) {
#pragma unroll
  for (int column = 0; column < D; column += 16) {
    uint32_t a[4];
    load_left(a, me, left, me.first_row, column);
#pragma unroll
    for (int n = 0; n < R; n += 16) {
      uint32_t b[4];
      load_right_transposed(b, me, right, n, column);
      multiply_add(result[n / 8], a, b[0], b[1]);
      multiply_add(result[n / 8 + 1], a, b[2], b[3]);
    }
  }
}

// sums += weights · right: weights are 16 × R, rounded to bf16.
template <int D, int R>
__device__ void multiply(Fragments<D>& sums, const Fragments<R>& weights, const Lane& me,
                         const Tile<D, R>& right) {
#pragma unroll
  for (int n = 0; n < R; n += 16) {
    const float(&low)[4] = weights[n / 8];
    const float(&high)[4] = weights[n / 8 + 1];
    const uint32_t a[4] = {pack_two(low[0], low[1]), pack_two(low[2], low[3]), pack_two(high[0], high[1]),
                           pack_two(high[2], high[3])};
#pragma unroll
    for (int column = 0; column < D; column += 16) {
      uint32_t b[4];
      load_right(b, me, right, n, column);
      multiply_add(sums[column / 8], a, b[0], b[1]);
      multiply_add(sums[column / 8 + 1], a, b[2], b[3]);
    }
  }
}

// Writes the warp's rows, times `factor` for the upper and lower half of the fragment, through the warp's own
// rows of `tile`, which no other warp may still read. `head`: the head's first element in row 0 of the
// sample.
template <int D>
__device__ void store_rows(const AttentionLayout& layout, const Lane& me, const Fragments<D>& sums,
                           const float (&factor)[2], Tile<D>& tile, bf16* head, int64_t stride, int first) {
  __syncwarp();  // all lanes have read the rows
#pragma unroll
  for (int n = 0; n < D / 8; ++n)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint32_t two = pack_two(sums[n][2 * half] * factor[half], sums[n][2 * half + 1] * factor[half]);
      memcpy(static_cast<void*>(&tile.row[me.first_row + me.g + 8 * half][n * 8 + 2 * me.t]), &two,
             sizeof two);
    }
  __syncwarp();
  constexpr int kPieces = D / 8;
  for (int piece = me.lane; piece < kRows * kPieces; piece += kWarp) {
    const int row = me.first_row + piece / kPieces, column = piece % kPieces * 8;
    if (first + row < layout.seq && column < layout.head_dim)
      store_16(head + (first + row) * stride + column, load_16(&tile.row[row][column]));
  }
}

// Fetches the rows that store_rows() wrote, times `factor`; zeros beyond the ends.
template <int D>
__device__ void load_fragments(const AttentionLayout& layout, const Lane& me, Fragments<D>& sums,
                               float factor, const bf16* head, int64_t stride, int first) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = first + me.first_row + me.g + 8 * half;
#pragma unroll
    for (int n = 0; n < D / 8; ++n) {
      const int column = n * 8 + 2 * me.t;
      if (row >= layout.seq || column >= layout.head_dim) continue;
      const bf16* const two = head + row * stride + column;
      sums[n][2 * half] = to_float(two[0]) * factor;
      sums[n][2 * half + 1] = to_float(two[1]) * factor;
    }
  }
}

template <int D>
struct ForwardTiles {
  Tile<D> q, k, v;
};

template <int D>
__global__ void __launch_bounds__(kMmaThreads)
    forward_kernel(AttentionLayout layout, AttentionForward<bf16> on) {
  auto& tiles = *static_cast<ForwardTiles<D>*>(dynamic_shared());
  const Lane me;
  // Blocks with the most keys come first, because the last blocks decide when the kernel ends.
  const int first = layout.first_query + static_cast<int>(gridDim.x - 1 - blockIdx.x) * kMmaTile;
  const int head = static_cast<int>(blockIdx.y);
  const int64_t sample = int64_t{blockIdx.z} * layout.seq;
  const bf16* const q = on.qkv + sample * layout.stride + head * layout.head_dim;
  const bf16* const k =
      on.kv + sample * layout.kv_stride + layout.k_column + head / layout.group * layout.head_dim;
  const bf16* const v = k + (layout.v_column - layout.k_column);
  bf16* const out = on.out + sample * layout.out_stride + head * layout.head_dim;
  float* const log_sum_exp = on.log_sum_exp + sample * layout.q_heads + head;

  copy_rows(layout, q, layout.stride, first, tiles.q);
  copy_rows(layout, k, layout.kv_stride, 0, tiles.k);
  commit_copies();
  copy_rows(layout, v, layout.kv_stride, 0, tiles.v);
  commit_copies();

  Fragments<D> sums = {};
  float maximum[2] = {-INFINITY, -INFINITY},
        total[2] = {};   // of rows g and g + 8; totals of this lane's columns
  if (!layout.causal) {  // the earlier result counts as one more key
    load_fragments<D>(layout, me, sums, 1, out, layout.out_stride, first);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int query = first + me.first_row + me.g + 8 * half;
      if (query < layout.seq) maximum[half] = log_sum_exp[query * layout.q_heads] / layout.scale;
      total[half] = query < layout.seq && me.t == 0 ? 1.0F : 0.0F;
    }
  }
  // The next keys are in transfer during work on this tile's weights and values, the next values during work
  // on its scores. Two stages of both would not overlap more, and would leave room for fewer blocks.
  const int end = key_end(layout, first, kMmaTile);
  for (int key = 0; key < end; key += kMmaTile) {
    wait_copies<1>();  // the keys; the values may still be in transfer
    __syncthreads();
    Fragments<kMmaTile> scores = {};
    multiply_transposed(scores, me, tiles.q, tiles.k);
    __syncthreads();
    if (key + kMmaTile < end) copy_rows(layout, k, layout.kv_stride, key + kMmaTile, tiles.k);
    commit_copies();

    // The tile on the diagonal masks later keys; the last tile masks keys beyond the end.
    if (key + kMmaTile > (layout.causal ? first : end)) {
#pragma unroll
      for (int n = 0; n < kMmaTile / 8; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e)
          if (key + n * 8 + 2 * me.t + e % 2 > last_key(layout, first + me.first_row + me.g + e / 2 * 8))
            scores[n][e] = -INFINITY;
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float largest = maximum[half];
#pragma unroll
      for (int n = 0; n < kMmaTile / 8; ++n)
        largest = fmaxf(largest, fmaxf(scores[n][2 * half], scores[n][2 * half + 1]));
      largest = reduce_lanes<4>(largest, Maximum{});  // the four lanes of a row; the first key is seen by all
      const float shift = largest * layout.scale_log2;
      const float shrink = exp2f(maximum[half] * layout.scale_log2 - shift);
      maximum[half] = largest;
      total[half] *= shrink;
#pragma unroll
      for (int n = 0; n < kMmaTile / 8; ++n)
#pragma unroll
        for (int e = 2 * half; e < 2 * half + 2; ++e) {
          scores[n][e] = exp2f(scores[n][e] * layout.scale_log2 - shift);
          total[half] += scores[n][e];
        }
#pragma unroll
      for (int n = 0; n < D / 8; ++n)
#pragma unroll
        for (int e = 2 * half; e < 2 * half + 2; ++e) sums[n][e] *= shrink;
    }

    wait_copies<1>();  // the values; the next keys may still be in transfer
    __syncthreads();
    multiply(sums, scores, me, tiles.v);
    __syncthreads();
    if (key + kMmaTile < end) copy_rows(layout, v, layout.kv_stride, key + kMmaTile, tiles.v);
    commit_copies();
  }

  float inverse[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float sum = reduce_lanes<4>(total[half], Sum{});
    inverse[half] = 1.0F / sum;
    const int query = first + me.first_row + me.g + 8 * half;
    if (me.t == 0 && query < layout.seq)
      log_sum_exp[query * layout.q_heads] = maximum[half] * layout.scale + logf(sum);
  }
  store_rows(layout, me, sums, inverse, tiles.q, out, layout.out_stride, first);
}

template <int D>
struct QueryTiles {
  Tile<D> q, g;  // g: the gradient of the output
  struct {
    Tile<D, kStage> k, v;
  } stage[2];
};

// A block owns queries, and sums over keys.
template <int D>
__global__ void __launch_bounds__(kMmaThreads)
    query_gradient_kernel(AttentionLayout layout, AttentionBackward<bf16> on) {
  auto& tiles = *static_cast<QueryTiles<D>*>(dynamic_shared());
  const Lane me;
  const int first = layout.first_query + static_cast<int>(gridDim.x - 1 - blockIdx.x) * kMmaTile;
  const int head = static_cast<int>(blockIdx.y);
  const int64_t sample = int64_t{blockIdx.z} * layout.seq;
  const bf16* const k =
      on.kv + sample * layout.kv_stride + layout.k_column + head / layout.group * layout.head_dim;
  const bf16* const v = k + (layout.v_column - layout.k_column);
  bf16* const gradient = on.qkv_gradient + sample * layout.stride + head * layout.head_dim;
  copy_rows(layout, on.qkv + sample * layout.stride + head * layout.head_dim, layout.stride, first, tiles.q);
  copy_rows(layout, on.out_gradient + sample * layout.out_stride + head * layout.head_dim, layout.out_stride,
            first, tiles.g);

  float shift[2], mean[2];  // rows beyond the end have no scores and gradients, and are not stored
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int query = min(first + me.first_row + me.g + 8 * half, layout.seq - 1);
    shift[half] = on.log_sum_exp[(sample + query) * layout.q_heads + head] * kLog2E;
    mean[half] = on.delta[(sample + query) * layout.q_heads + head];
  }
  Fragments<D> sums = {};
  if (!layout.causal) load_fragments<D>(layout, me, sums, 1 / layout.scale, gradient, layout.stride, first);
  const int end = key_end(layout, first, kMmaTile);
  const auto fetch = [&](int key) {
    auto& stage = tiles.stage[key / kStage % 2];
    copy_rows(layout, k, layout.kv_stride, key, stage.k);
    copy_rows(layout, v, layout.kv_stride, key, stage.v);
    commit_copies();
  };
  fetch(0);
  for (int key = 0; key < end; key += kStage) {
    wait_copies<0>();
    __syncthreads();  // this stage is complete, and all threads have finished the other
    if (key + kStage < end) fetch(key + kStage);
    const auto& stage = tiles.stage[key / kStage % 2];
    Fragments<kStage> scores = {}, gradients = {};
    multiply_transposed(scores, me, tiles.q, stage.k);
    multiply_transposed(gradients, me, tiles.g, stage.v);
#pragma unroll
    for (int n = 0; n < kStage / 8; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int row = me.first_row + me.g + e / 2 * 8, column = n * 8 + 2 * me.t + e % 2;
        const bool seen = key + column <= last_key(layout, first + row);
        const float weight = exp2f(scores[n][e] * layout.scale_log2 - shift[e / 2]);
        gradients[n][e] = seen ? weight * (gradients[n][e] - mean[e / 2]) : 0.0F;
      }
    multiply(sums, gradients, me, stage.k);
  }
  const float factor[2] = {layout.scale, layout.scale};
  store_rows(layout, me, sums, factor, tiles.q, gradient, layout.stride, first);
}

template <int D>
struct KeyTiles {
  Tile<D> k, v;
  struct {
    Tile<D, kStage> q, g;
    float log_sum_exp[kStage], mean[kStage];  // of the queries
  } stage[2];
};

// A block owns keys, and sums over the queries of all heads of the group. Scores are transposed: keys are
// rows. Keys that no query attends to have zero gradients. kCausal is the layout's flag as a constant,
// because the kernel uses all available registers.
template <int D, bool kCausal>
__global__ void __launch_bounds__(kMmaThreads)
    key_value_gradient_kernel(AttentionLayout layout, AttentionBackward<bf16> on) {
  auto& tiles = *static_cast<KeyTiles<D>*>(dynamic_shared());
  const Lane me;
  layout.causal = kCausal;
  const int first = static_cast<int>(blockIdx.x) * kMmaTile, key_head = static_cast<int>(blockIdx.y);
  const int64_t sample = int64_t{blockIdx.z} * layout.seq;
  const bf16* const rows = on.qkv + sample * layout.stride;
  const bf16* const keys = on.kv + sample * layout.kv_stride;
  const int k_column = layout.k_column + key_head * layout.head_dim;
  const int v_column = layout.v_column + key_head * layout.head_dim;

  const int first_head = key_head * layout.group;
  const bool attended = kCausal || first < layout.keys;
  const int head_end = first_head + (attended ? layout.group : 0);
  const int begin = kCausal ? first : layout.first_query;
  const auto fetch = [&](int at, int head, int query) {
    auto& stage = tiles.stage[at];
    copy_rows(layout, rows + head * layout.head_dim, layout.stride, query, stage.q);
    copy_rows(layout, on.out_gradient + sample * layout.out_stride + head * layout.head_dim,
              layout.out_stride, query, stage.g);
    // Queries beyond the end are zeros with a gradient of zero: they add nothing for any weights.
    if (const int i = static_cast<int>(threadIdx.x); i < kStage) {
      const bool valid = query + i < layout.seq;
      const int64_t token = valid ? (sample + query + i) * layout.q_heads + head : 0;
      copy_4_async(&stage.log_sum_exp[i], on.log_sum_exp + token, valid);
      copy_4_async(&stage.mean[i], on.delta + token, valid);
    }
    commit_copies();
  };
  if (attended) {
    copy_rows(layout, keys + k_column, layout.kv_stride, first, tiles.k);
    copy_rows(layout, keys + v_column, layout.kv_stride, first, tiles.v);
    fetch(0, first_head, begin);
  }
  Fragments<D> k_sums = {}, v_sums = {};
  int at = 0;
  for (int head = first_head; head < head_end; ++head) {
    for (int query = begin; query < layout.seq; query += kStage, at ^= 1) {
      wait_copies<0>();
      __syncthreads();  // this stage is complete, and all threads have finished the other
      const bool last = query + kStage >= layout.seq;
      if (!last || head + 1 < head_end) fetch(at ^ 1, last ? head + 1 : head, last ? begin : query + kStage);
      const auto& stage = tiles.stage[at];
      Fragments<kStage> weights = {}, gradients = {};
      multiply_transposed(weights, me, tiles.k, stage.q);
      multiply_transposed(gradients, me, tiles.v, stage.g);
#pragma unroll
      for (int n = 0; n < kStage / 8; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int row = me.first_row + me.g + e / 2 * 8, column = n * 8 + 2 * me.t + e % 2;
          const bool seen = first + row <= last_key(layout, query + column);
          const float weight = exp2f(weights[n][e] * layout.scale_log2 - stage.log_sum_exp[column] * kLog2E);
          weights[n][e] = seen ? weight : 0.0F;
          gradients[n][e] = weights[n][e] * (gradients[n][e] - stage.mean[column]);
        }
      multiply(v_sums, weights, me, stage.g);
      multiply(k_sums, gradients, me, stage.q);
    }
  }
  bf16* const to = on.kv_gradient + sample * layout.kv_stride;
  const float factor[2] = {layout.scale, layout.scale}, one[2] = {1, 1};
  store_rows(layout, me, k_sums, factor, tiles.k, to + k_column, layout.kv_stride, first);
  store_rows(layout, me, v_sums, one, tiles.v, to + v_column, layout.kv_stride, first);
}

LaunchShape block_shape(const AttentionShape& shape, int rows, int heads, size_t shared) {
  return {dim3(narrow(divide_up(rows, kMmaTile)), narrow(heads), narrow(shape.batch)), kMmaThreads, shared};
}

// Calls work(Width<D>) with the smallest D that holds a head.
template <typename Work>
void by_head_dim(int head_dim, Work work) {
  if (head_dim <= 64) {
    work(Width<64>{});
  } else if (head_dim <= 80) {
    work(Width<80>{});
  } else if (head_dim <= 96) {
    work(Width<96>{});
  } else {
    work(Width<128>{});
  }
}

}  // namespace

// Whole pieces of 16 bytes per head also start at such pieces: rows of qkv are whole heads.
bool attention_mma_supports(const AttentionShape& shape) {
  return shape.head_dim % 8 == 0 && shape.head_dim <= 128;
}

namespace {
// The kernels copy a first tile of keys without looking.
void check_keys(const AttentionLayout& layout) {
  if (layout.keys < 1) throw std::logic_error("attention to no keys");
}
}  // namespace

void attention_mma_forward(Stream& stream, const AttentionShape& shape, const AttentionLayout& layout,
                           const AttentionForward<bf16>& on) {
  if (shape.tokens() == 0) return;
  check_keys(layout);
  by_head_dim(shape.head_dim, [&](auto width) {
    start(stream, forward_kernel<width>,
          block_shape(shape, shape.seq - layout.first_query, shape.q_heads, sizeof(ForwardTiles<width>)),
          layout, on);
  });
}

void attention_mma_backward(Stream& stream, const AttentionShape& shape, const AttentionLayout& layout,
                            const AttentionBackward<bf16>& on) {
  if (shape.tokens() == 0) return;
  check_keys(layout);
  by_head_dim(shape.head_dim, [&](auto width) {
    start(stream, query_gradient_kernel<width>,
          block_shape(shape, shape.seq - layout.first_query, shape.q_heads, sizeof(QueryTiles<width>)),
          layout, on);
    start(stream,
          layout.causal ? key_value_gradient_kernel<width, true> : key_value_gradient_kernel<width, false>,
          block_shape(shape, shape.seq, shape.kv_heads, sizeof(KeyTiles<width>)), layout, on);
  });
}

}  // namespace stp::cuda
