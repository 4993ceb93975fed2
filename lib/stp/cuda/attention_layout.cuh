// Where the heads of attention lie in rows of qkv, and of out: what both families of its kernels are given.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>

#include "stp/device/kernels.h"

namespace stp::cuda::launch {

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

}  // namespace stp::cuda::launch
