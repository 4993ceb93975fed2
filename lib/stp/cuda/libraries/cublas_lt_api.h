// The functions of cuBLASLt that this backend calls. Their library is loaded at first use.
#pragma once

#include <cublasLt.h>

#include <string>

#include "stp/cuda/cuda_check.h"

/// Applies `use` to the name of each function.
// clang-format off
#define STP_CUBLAS_LT_FUNCTIONS(use) \
  use(cublasLtGetStatusName) use(cublasLtCreate) use(cublasLtDestroy) \
  use(cublasLtMatrixLayoutCreate) use(cublasLtMatrixLayoutDestroy) use(cublasLtMatmulDescCreate) \
  use(cublasLtMatmulDescDestroy) use(cublasLtMatmulDescSetAttribute) \
  use(cublasLtMatmulPreferenceCreate) use(cublasLtMatmulPreferenceDestroy) \
  use(cublasLtMatmulPreferenceSetAttribute) \
  use(cublasLtMatmulAlgoGetHeuristic) use(cublasLtMatmul)
// clang-format on

namespace stp::cuda {

struct CublasLtApi {
#define STP_CUBLAS_LT_MEMBER(name) decltype(::name)* name;  // NOLINT(bugprone-macro-parentheses)
  STP_CUBLAS_LT_FUNCTIONS(STP_CUBLAS_LT_MEMBER)
#undef STP_CUBLAS_LT_MEMBER
};

/// The library's name for the loader.
inline const std::string kCublasLt = "libcublasLt.so." + std::to_string(CUBLAS_VER_MAJOR);

/// One table for all threads. Throws InputError if the library or a function is missing.
const CublasLtApi& cublas_lt();

}  // namespace stp::cuda

/// STP_CUBLAS(cublasLtCreate(&handle)): the table's function, checked.
#define STP_CUBLAS(call)                                                                                 \
  ::stp::cuda::check_call(::stp::cuda::cublas_lt().call, ::stp::cuda::cublas_lt().cublasLtGetStatusName, \
                          #call, __FILE__, __LINE__)
