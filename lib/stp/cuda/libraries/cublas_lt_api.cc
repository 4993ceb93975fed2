#include "stp/cuda/libraries/cublas_lt_api.h"

#include "stp/cuda/libraries/shared_library.h"

namespace stp::cuda {
namespace {

CublasLtApi load() {
  const SharedLibrary library(kCublasLt);
  CublasLtApi api{};
  STP_TAKE_FUNCTION(api, library, cublasLtGetStatusName);
  STP_TAKE_FUNCTION(api, library, cublasLtGetVersion);
  STP_TAKE_FUNCTION(api, library, cublasLtCreate);
  STP_TAKE_FUNCTION(api, library, cublasLtDestroy);
  STP_TAKE_FUNCTION(api, library, cublasLtMatrixLayoutCreate);
  STP_TAKE_FUNCTION(api, library, cublasLtMatrixLayoutDestroy);
  STP_TAKE_FUNCTION(api, library, cublasLtMatmulDescCreate);
  STP_TAKE_FUNCTION(api, library, cublasLtMatmulDescDestroy);
  STP_TAKE_FUNCTION(api, library, cublasLtMatmulDescSetAttribute);
  STP_TAKE_FUNCTION(api, library, cublasLtMatmulPreferenceCreate);
  STP_TAKE_FUNCTION(api, library, cublasLtMatmulPreferenceDestroy);
  STP_TAKE_FUNCTION(api, library, cublasLtMatmulPreferenceSetAttribute);
  STP_TAKE_FUNCTION(api, library, cublasLtMatmulAlgoGetHeuristic);
  STP_TAKE_FUNCTION(api, library, cublasLtMatmul);
  return api;
}

}  // namespace

const CublasLtApi& cublas_lt() {
  static const CublasLtApi api = load();
  return api;
}

}  // namespace stp::cuda
