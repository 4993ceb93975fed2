#include "stp/cpu/blas.h"

#include <cblas.h>

#include <chrono>
#include <mutex>

namespace stp::cpu {
namespace {

// Ranks are threads already: a product must not start more.
void one_thread_per_caller() {
  static std::once_flag once;
  std::call_once(once, [] { openblas_set_num_threads(1); });
}

}  // namespace

template <typename T>
void blas_gemm(BlasCounter& counter, bool transpose_a, bool transpose_b, int64_t m, int64_t n, int64_t k,
               double alpha, MatrixView<const T> a, MatrixView<const T> b, double beta, MatrixView<T> c) {
  if (m == 0 || n == 0) return;
  one_thread_per_caller();
  const auto start = std::chrono::steady_clock::now();
  const CBLAS_TRANSPOSE ta = transpose_a ? CblasTrans : CblasNoTrans,
                        tb = transpose_b ? CblasTrans : CblasNoTrans;
  const auto narrow = [](int64_t value) { return static_cast<blasint>(value); };
  if constexpr (sizeof(T) == sizeof(float)) {
    cblas_sgemm(CblasRowMajor, ta, tb, narrow(m), narrow(n), narrow(k), static_cast<float>(alpha), a.data,
                narrow(a.stride), b.data, narrow(b.stride), static_cast<float>(beta), c.data,
                narrow(c.stride));
  } else {
    cblas_dgemm(CblasRowMajor, ta, tb, narrow(m), narrow(n), narrow(k), alpha, a.data, narrow(a.stride),
                b.data, narrow(b.stride), beta, c.data, narrow(c.stride));
  }
  counter.add(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(),
              2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k));
}

template void blas_gemm<float>(BlasCounter&, bool, bool, int64_t, int64_t, int64_t, double,
                               MatrixView<const float>, MatrixView<const float>, double, MatrixView<float>);
template void blas_gemm<double>(BlasCounter&, bool, bool, int64_t, int64_t, int64_t, double,
                                MatrixView<const double>, MatrixView<const double>, double,
                                MatrixView<double>);

}  // namespace stp::cpu
