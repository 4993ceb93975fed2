#include "stp/cuda/gemm_layout.h"

namespace stp::cuda {
namespace {

ColumnMajor of_row_major(int64_t rows, int64_t columns, bool transposed) {
  return {columns, rows, columns, transposed};
}

}  // namespace

GemmLayout gemm_layout(bool transpose_a, bool transpose_b, int64_t m, int64_t n, int64_t k) {
  return {of_row_major(transpose_b ? n : k, transpose_b ? k : n, transpose_b),
          of_row_major(transpose_a ? k : m, transpose_a ? m : k, transpose_a), of_row_major(m, n, false), k};
}

}  // namespace stp::cuda
