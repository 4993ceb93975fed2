// OpenBLAS's GEMMs on raw pointers, one thread per caller, with counters.
#pragma once

#include <atomic>
#include <cstdint>

#include "stp/device/kernel_arguments.h"

namespace stp::cpu {

/// Totals of one device's BLAS calls, over all of its streams; see blas_use() in cpu_backend.h.
struct BlasCounter {
  std::atomic<double> seconds{0}, flops{0};

  void add(double more_seconds, double more_flops) {
    seconds.fetch_add(more_seconds, std::memory_order_relaxed);
    flops.fetch_add(more_flops, std::memory_order_relaxed);
  }
};

/// A row-major matrix within a larger one: element (i, j) is at data[i · stride + j].
template <typename T>
struct MatrixView {
  T* data;
  int64_t stride;
};

/// Computes kernel::Gemm. With beta 0, c is not read.
template <typename T>
void blas_gemm(BlasCounter& counter, const GemmShape& shape, double alpha, MatrixView<const T> a,
               MatrixView<const T> b, double beta, MatrixView<T> c);

}  // namespace stp::cpu
