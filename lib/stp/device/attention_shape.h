// The shapes of attention.
#pragma once

#include <cstdint>

namespace stp {

/// Rows of `qkv` are [q_heads · d | kv_heads · d | kv_heads · d], this tensor-parallel rank's heads. With
/// context parallelism `seq` counts this rank's tokens of a sample: pieces cp_index and 2cp − 1 − cp_index of
/// the 2cp that its sequence is divided into. Only without it may attention be without mask.
struct AttentionShape {
  int batch, seq, q_heads, kv_heads, head_dim;
  int cp = 1, cp_index = 0;
  bool causal = true;
  [[nodiscard]] int64_t tokens() const { return int64_t{batch} * seq; }
  [[nodiscard]] int64_t q_columns() const { return int64_t{q_heads} * head_dim; }
  [[nodiscard]] int64_t kv_columns() const { return int64_t{kv_heads} * head_dim; }
  [[nodiscard]] int64_t qkv_columns() const { return q_columns() + 2 * kv_columns(); }
};

/// Where row `row` of the `seq` tokens that rank `cp_index` of `cp` has of a sample stands in its whole
/// sequence.
int64_t position_of(int cp, int cp_index, int64_t seq, int64_t row);

/// Of each sample: which of this rank's queries attend to which keys, all of them to each. The queries go on
/// to the sample's end, the keys begin with the first.
struct AttentionBlock {
  int first_query, keys;
};
/// What the rank of `shape` attends to of the keys of rank `other` of its ring: all queries to its first
/// piece, which is before both of the own, if other < cp_index, else the second own piece to both of its
/// pieces.
AttentionBlock attention_block(const AttentionShape& shape, int other);

}  // namespace stp
