// Attention's own kernels: one family for the tensor cores (attention_mma.cu), one for any head
// (attention_plain.cu).
#pragma once

#include <cuda_bf16.h>

#include <cmath>
#include <cstdint>
#include <numbers>

#include "stp/device/kernels.h"

namespace stp::cuda {

/// Where heads lie in rows of qkv, and of out.
struct AttentionLayout {
  int seq, head_dim, group;         // query heads per key head
  int64_t stride, out_stride;       // elements from row to row
  int q_heads, k_column, v_column;  // of the first key head
  float scale, scale_log2;          // 1 / √head_dim, and times log2 e: exponentials as powers of two
};

inline AttentionLayout layout_of(const AttentionShape& shape) {
  const double scale = 1 / std::sqrt(static_cast<double>(shape.head_dim));
  return {shape.seq,
          shape.head_dim,
          shape.q_heads / shape.kv_heads,
          shape.qkv_columns(),
          shape.q_columns(),
          shape.q_heads,
          static_cast<int>(shape.q_columns()),
          static_cast<int>(shape.q_columns() + shape.kv_columns()),
          static_cast<float>(scale),
          static_cast<float>(scale * std::numbers::log2e)};
}

// T is float or __nv_bfloat16.

/// delta[token, head] = Σ out · out_gradient over the head: what both backwards begin with.
template <typename T>
void attention_delta(Stream& stream, const AttentionShape& shape, const T* out, const T* out_gradient,
                     float* delta);

/// In float32 on the CUDA cores.
template <typename T>
void attention_plain_forward(Stream& stream, const AttentionShape& shape, const T* qkv, T* out,
                             float* log_sum_exp);
template <typename T>
void attention_plain_backward(Stream& stream, const AttentionShape& shape, const T* qkv,
                              const float* log_sum_exp, const T* out_gradient, const float* delta,
                              T* qkv_gradient);

/// Heads of up to 128 elements in whole pieces of 16 bytes.
bool attention_mma_supports(const AttentionShape& shape);
void attention_mma_forward(Stream& stream, const AttentionShape& shape, const __nv_bfloat16* qkv,
                           __nv_bfloat16* out, float* log_sum_exp);
void attention_mma_backward(Stream& stream, const AttentionShape& shape, const __nv_bfloat16* qkv,
                            const float* log_sum_exp, const __nv_bfloat16* out_gradient, const float* delta,
                            __nv_bfloat16* qkv_gradient);

/// The statistics of T × heads as batch × heads × seq, which is cuDNN's order, and back.
void statistics_by_head(Stream& stream, const AttentionShape& shape, const float* by_token, float* by_head);
void statistics_by_token(Stream& stream, const AttentionShape& shape, const float* by_head, float* by_token);

}  // namespace stp::cuda
