// Row-major products in a library whose matrices are column-major. A row-major matrix is the column-major
// layout of its transpose, so c = op(a) · op(b) is asked for as cᵀ = op(b)ᵀ · op(a)ᵀ: b is the left factor, a
// the right one, and the flags keep their meaning.
#pragma once

#include <cstdint>

namespace stp::cuda {

/// Element (i, j) lies at j · leading + i. `rows` and `columns` are those in memory, before the
/// transposition.
struct ColumnMajor {
  int64_t rows, columns, leading;
  bool transposed;
};

/// result = op(left) · op(right), where left is the memory of b, right that of a, and result that of c.
struct GemmLayout {
  ColumnMajor left, right, result;
  int64_t inner;
};

/// Of the dense row-major product of op(a), m × k, and op(b), k × n.
GemmLayout gemm_layout(bool transpose_a, bool transpose_b, int64_t m, int64_t n, int64_t k);

}  // namespace stp::cuda
