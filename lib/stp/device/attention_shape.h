// The shapes of attention.
#pragma once

#include <cstdint>

namespace stp {

/// Rows of `qkv` are [q_heads · d | kv_heads · d | kv_heads · d], this tensor-parallel rank's heads. With
/// context parallelism `seq` counts this rank's tokens of a sample: pieces cp_index and 2cp − 1 − cp_index of
/// the sequence's 2cp pieces. Attention without mask needs cp = 1.
struct AttentionShape {
  int batch, seq, q_heads, kv_heads, head_dim;
  int cp = 1, cp_index = 0;
  int unrotated = 0;  // of head_dim: elements at the end that rotary embedding leaves as they are
  bool causal = true;
  [[nodiscard]] int rotated() const { return head_dim - unrotated; }
  [[nodiscard]] int64_t tokens() const { return int64_t{batch} * seq; }
  [[nodiscard]] int64_t q_columns() const { return int64_t{q_heads} * head_dim; }
  [[nodiscard]] int64_t kv_columns() const { return int64_t{kv_heads} * head_dim; }
  [[nodiscard]] int64_t qkv_columns() const { return q_columns() + 2 * kv_columns(); }
};

/// The position in the whole sequence of row `row` of the `seq` tokens that rank `cp_index` of `cp` has.
inline int64_t position_of(int cp, int cp_index, int64_t seq, int64_t row) {
  const int64_t piece = seq / 2;
  if (cp == 1) return row;
  return row < piece ? cp_index * piece + row : (2 * cp - 1 - cp_index) * piece + row - piece;
}

/// This rank's queries and another rank's keys in one ring step, for each sample: the queries from
/// `first_query` to the end and the first `keys` keys. Each query attends to all of these keys.
struct AttentionBlock {
  int first_query, keys;
};
/// The block of the rank of `shape` and the keys of rank `other` of its ring. If other < cp_index, all
/// queries attend to the first piece, which is before both of this rank's pieces. Otherwise the queries of
/// the second piece attend to both pieces.
inline AttentionBlock attention_block(const AttentionShape& shape, int other) {
  const int piece = shape.seq / 2;
  return other < shape.cp_index ? AttentionBlock{.first_query = 0, .keys = piece}
                                : AttentionBlock{.first_query = piece, .keys = shape.seq};
}

}  // namespace stp
