// This backend's own attention kernels: one family for the tensor cores (attention_mma.cu), one for any head
// (attention_plain.cu).
#pragma once

#include <cuda_bf16.h>

#include <cmath>
#include <cstdint>
#include <numbers>

#include "stp/device/attention_shape.h"
#include "stp/device/stream.h"

namespace stp::cuda {

/// The place of heads in rows of qkv, kv and out, and the attention of a sample's queries. Queries from
/// first_query on attend to the first `keys` keys, or, if `causal`, to the keys up to their own position.
struct AttentionLayout {
  int seq, head_dim, group;               // rows of a sample; query heads per key head
  int64_t stride, kv_stride, out_stride;  // elements from row to row
  int q_heads, k_column, v_column;        // of the first key head, in rows of kv
  float scale, scale_log2;                // 1 / √head_dim, and times log2 e: exponentials as powers of two
  int first_query, keys;
  bool causal;
};

/// The last key that a query attends to.
__host__ __device__ inline int last_key(const AttentionLayout& layout, int query) {
  return layout.causal ? query : layout.keys - 1;
}
/// One after the last key that any of the queries [first, first + rows) attends to.
__host__ __device__ inline int key_end(const AttentionLayout& layout, int first, int rows) {
  return layout.causal && first + rows < layout.keys ? first + rows : layout.keys;
}

/// The layout for a rank's own keys: kv is qkv.
inline AttentionLayout layout_of(const AttentionShape& shape) {
  const double scale = 1 / std::sqrt(static_cast<double>(shape.head_dim));
  return {.seq = shape.seq,
          .head_dim = shape.head_dim,
          .group = shape.q_heads / shape.kv_heads,
          .stride = shape.qkv_columns(),
          .kv_stride = shape.qkv_columns(),
          .out_stride = shape.q_columns(),
          .q_heads = shape.q_heads,
          .k_column = static_cast<int>(shape.q_columns()),
          .v_column = static_cast<int>(shape.q_columns() + shape.kv_columns()),
          .scale = static_cast<float>(scale),
          .scale_log2 = static_cast<float>(scale * std::numbers::log2e),
          .first_query = 0,
          .keys = shape.seq,
          .causal = true};
}
/// The layout for another rank's keys, in a tensor of only keys and values.
inline AttentionLayout layout_of(const AttentionShape& shape, const AttentionBlock& block) {
  AttentionLayout layout = layout_of(shape);
  layout.kv_stride = 2 * shape.kv_columns();
  layout.k_column = 0;
  layout.v_column = static_cast<int>(shape.kv_columns());
  layout.first_query = block.first_query;
  layout.keys = block.keys;
  layout.causal = false;
  return layout;
}

// T is float or __nv_bfloat16.

/// delta[token, head] = Σ out · out_gradient over the head. Both backwards begin with it.
template <typename T>
void attention_delta(Stream& stream, const AttentionShape& shape, const T* out, const T* out_gradient,
                     float* delta);

// Arguments of the kernels. Unless the layout is causal, kernels merge their result into `out` and
// `log_sum_exp`, or add it to the gradient of q.

template <typename T>
struct AttentionForward {
  const T *qkv, *kv;
  T* out;
  float* log_sum_exp;
};
/// `kv_gradient` has kv's layout.
template <typename T>
struct AttentionBackward {
  const T *qkv, *kv;
  const float* log_sum_exp;
  const T* out_gradient;
  const float* delta;
  T *qkv_gradient, *kv_gradient;
};

/// Kernels in float32 on the CUDA cores.
template <typename T>
void attention_plain_forward(Stream& stream, const AttentionShape& shape, const AttentionLayout& layout,
                             const AttentionForward<T>& on);
template <typename T>
void attention_plain_backward(Stream& stream, const AttentionShape& shape, const AttentionLayout& layout,
                              const AttentionBackward<T>& on);

/// Whether heads have at most 128 elements, in whole pieces of 16 bytes.
bool attention_mma_supports(const AttentionShape& shape);
void attention_mma_forward(Stream& stream, const AttentionShape& shape, const AttentionLayout& layout,
                           const AttentionForward<__nv_bfloat16>& on);
void attention_mma_backward(Stream& stream, const AttentionShape& shape, const AttentionLayout& layout,
                            const AttentionBackward<__nv_bfloat16>& on);

/// Converts statistics of T × heads to cuDNN's order, batch × heads × seq, and back.
void statistics_by_head(Stream& stream, const AttentionShape& shape, const float* by_token, float* by_head);
void statistics_by_token(Stream& stream, const AttentionShape& shape, const float* by_head, float* by_token);

}  // namespace stp::cuda
