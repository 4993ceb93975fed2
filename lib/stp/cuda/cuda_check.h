// Turns CUDA's error codes into exceptions that name call, reason and place. The macros take a call of the
// CUDA runtime or cuDNN; the user includes its header. cublas_lt_api.h has the macro for cuBLASLt.
#pragma once

#include <cuda_runtime_api.h>

#include <stdexcept>
#include <string>

namespace stp::cuda {

class CudaError : public std::runtime_error {
 public:
  /// Makes "cublasLtMatmul: CUBLAS_STATUS_NOT_SUPPORTED at gemm.cc:120" from the start of `call` and the end
  /// of `file`.
  CudaError(const std::string& call, const std::string& words, const std::string& file, int line)
      : std::runtime_error(call.substr(0, call.find('(')) + ": " + words + " at " +
                           file.substr(file.rfind('/') + 1) + ":" + std::to_string(line)) {}
};

/// Throws CudaError unless `status` is success, which is 0 in all these libraries. `words` gives a status's
/// text.
template <typename Status, typename Words>
void check_call(Status status, Words words, const char* call, const char* file, int line) {
  if (status != Status{}) throw CudaError(call, words(status), file, line);
}

/// "cudaErrorInvalidValue, invalid argument". Clears the runtime's error: later checks do not find it.
inline std::string cuda_error_text(cudaError_t error) {
  static_cast<void>(cudaGetLastError());
  return std::string(cudaGetErrorName(error)) + ", " + cudaGetErrorString(error);
}

}  // namespace stp::cuda

#define STP_CUDA(call) \
  ::stp::cuda::check_call((call), ::stp::cuda::cuda_error_text, #call, __FILE__, __LINE__)
#define STP_CUDNN(call) ::stp::cuda::check_call((call), ::cudnnGetErrorString, #call, __FILE__, __LINE__)
