#include "stp/cpu/blas.h"

#include <cblas.h>

#include <chrono>
#include <mutex>

namespace stp::cpu {
namespace {

// Ranks are threads already: a GEMM must not start more.
void one_thread_per_caller() {
  static std::once_flag once;
  std::call_once(once, [] { openblas_set_num_threads(1); });
}

}  // namespace

template <typename T>
void blas_gemm(BlasCounter& counter, const GemmShape& shape, double alpha, MatrixView<const T> a,
               MatrixView<const T> b, double beta, MatrixView<T> c) {
  if (shape.m == 0 || shape.n == 0) return;
  one_thread_per_caller();
  const auto start = std::chrono::steady_clock::now();
  const CBLAS_TRANSPOSE ta = shape.transpose_a ? CblasTrans : CblasNoTrans,
                        tb = shape.transpose_b ? CblasTrans : CblasNoTrans;
  const auto narrow = [](int64_t value) { return static_cast<blasint>(value); };
  const blasint m = narrow(shape.m), n = narrow(shape.n), k = narrow(shape.k);
  if constexpr (sizeof(T) == sizeof(float)) {
    cblas_sgemm(CblasRowMajor, ta, tb, m, n, k, static_cast<float>(alpha), a.data, narrow(a.stride), b.data,
                narrow(b.stride), static_cast<float>(beta), c.data, narrow(c.stride));
  } else {
    cblas_dgemm(CblasRowMajor, ta, tb, m, n, k, alpha, a.data, narrow(a.stride), b.data, narrow(b.stride),
                beta, c.data, narrow(c.stride));
  }
  counter.add(
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(),
      2.0 * static_cast<double>(shape.m) * static_cast<double>(shape.n) * static_cast<double>(shape.k));
}

template void blas_gemm<float>(BlasCounter&, const GemmShape&, double, MatrixView<const float>,
                               MatrixView<const float>, double, MatrixView<float>);
template void blas_gemm<double>(BlasCounter&, const GemmShape&, double, MatrixView<const double>,
                                MatrixView<const double>, double, MatrixView<double>);

}  // namespace stp::cpu
