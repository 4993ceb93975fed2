#include "stp/cuda/libraries/cublas_lt_api.h"

#include "stp/cuda/libraries/shared_library.h"

namespace stp::cuda {
namespace {

CublasLtApi load() {
  const SharedLibrary library(kCublasLt);
  CublasLtApi api{};
#define STP_CUBLAS_LT_TAKE(name) STP_TAKE_FUNCTION(api, library, name);
  STP_CUBLAS_LT_FUNCTIONS(STP_CUBLAS_LT_TAKE)
#undef STP_CUBLAS_LT_TAKE
  return api;
}

}  // namespace

const CublasLtApi& cublas_lt() {
  static const CublasLtApi api = load();
  return api;
}

}  // namespace stp::cuda
