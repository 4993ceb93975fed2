#include "stp/device/attention_shape.h"

namespace stp {

int64_t position_of(int cp, int cp_index, int64_t seq, int64_t row) {
  const int64_t piece = seq / 2;
  if (cp == 1) return row;
  return row < piece ? cp_index * piece + row : (2 * cp - 1 - cp_index) * piece + row - piece;
}

AttentionBlock attention_block(const AttentionShape& shape, int other) {
  const int piece = shape.seq / 2;
  return other < shape.cp_index ? AttentionBlock{.first_query = 0, .keys = piece}
                                : AttentionBlock{.first_query = piece, .keys = shape.seq};
}

}  // namespace stp
