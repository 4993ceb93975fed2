// The functions of cuBLASLt that this backend calls, from the library, which is loaded when they are first
// asked for.
#pragma once

#include <cublasLt.h>

#include "stp/cuda/cuda_check.h"

namespace stp::cuda {

struct CublasLtApi {
  decltype(::cublasLtGetStatusName)* cublasLtGetStatusName;

  decltype(::cublasLtCreate)* cublasLtCreate;
  decltype(::cublasLtDestroy)* cublasLtDestroy;

  decltype(::cublasLtMatrixLayoutCreate)* cublasLtMatrixLayoutCreate;
  decltype(::cublasLtMatrixLayoutDestroy)* cublasLtMatrixLayoutDestroy;
  decltype(::cublasLtMatmulDescCreate)* cublasLtMatmulDescCreate;
  decltype(::cublasLtMatmulDescDestroy)* cublasLtMatmulDescDestroy;
  decltype(::cublasLtMatmulDescSetAttribute)* cublasLtMatmulDescSetAttribute;
  decltype(::cublasLtMatmulPreferenceCreate)* cublasLtMatmulPreferenceCreate;
  decltype(::cublasLtMatmulPreferenceDestroy)* cublasLtMatmulPreferenceDestroy;
  decltype(::cublasLtMatmulPreferenceSetAttribute)* cublasLtMatmulPreferenceSetAttribute;

  decltype(::cublasLtMatmulAlgoGetHeuristic)* cublasLtMatmulAlgoGetHeuristic;
  decltype(::cublasLtMatmul)* cublasLtMatmul;
};

/// Of all threads. Throws InputError where the library or one of the functions is not there.
const CublasLtApi& cublas_lt();

}  // namespace stp::cuda

/// STP_CUBLAS(cublasLtCreate(&handle)): the table's function, checked.
#define STP_CUBLAS(call)                                                                                 \
  ::stp::cuda::check_call(::stp::cuda::cublas_lt().call, ::stp::cuda::cublas_lt().cublasLtGetStatusName, \
                          #call, __FILE__, __LINE__)
