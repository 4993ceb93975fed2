// The functions of cuBLASLt that this backend calls. Their library is loaded at first use.
#pragma once

#include <cublasLt.h>

#include <string>

#include "stp/cuda/cuda_check.h"

namespace stp::cuda {

struct CublasLtApi {
  decltype(::cublasLtGetStatusName)* cublasLtGetStatusName;
  decltype(::cublasLtGetVersion)* cublasLtGetVersion;

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

/// The library's name for the loader.
inline const std::string kCublasLt = "libcublasLt.so." + std::to_string(CUBLAS_VER_MAJOR);

/// One table for all threads. Throws InputError if the library or a function is missing.
const CublasLtApi& cublas_lt();

}  // namespace stp::cuda

/// STP_CUBLAS(cublasLtCreate(&handle)): the table's function, checked.
#define STP_CUBLAS(call)                                                                                 \
  ::stp::cuda::check_call(::stp::cuda::cublas_lt().call, ::stp::cuda::cublas_lt().cublasLtGetStatusName, \
                          #call, __FILE__, __LINE__)
