// Matrix products of OpenBLAS on raw pointers, one thread per caller, counted.
#pragma once

#include <cstdint>

#include "stp/cpu/blas_counter.h"

namespace stp::cpu {

/// A row-major matrix within a larger one: element (i, j) is at data[i · stride + j].
template <typename T>
struct MatrixView {
  T* data;
  int64_t stride;
};

/// c = alpha · op(a) · op(b) + beta · c, where op(a) is m × k, op(b) k × n, and c m × n. With beta 0, c is
/// not read.
template <typename T>
void blas_gemm(BlasCounter& counter, bool transpose_a, bool transpose_b, int64_t m, int64_t n, int64_t k,
               double alpha, MatrixView<const T> a, MatrixView<const T> b, double beta, MatrixView<T> c);

}  // namespace stp::cpu
