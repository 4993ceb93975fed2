// What becomes of CUDA's error codes: exceptions that name call, reason and place. The macros take a call of
// the CUDA runtime or cuDNN, whose header the user includes; cuBLASLt's is in cublas_lt_api.h.
#pragma once

#include <cuda_runtime_api.h>

#include <stdexcept>
#include <string>

namespace stp::cuda {

class CudaError : public std::runtime_error {
 public:
  /// "cublasLtMatmul: CUBLAS_STATUS_NOT_SUPPORTED at gemm.cc:120", of whatever `call` and `file` begin or end
  /// with.
  CudaError(const std::string& call, const std::string& words, const std::string& file, int line)
      : std::runtime_error(call.substr(0, call.find('(')) + ": " + words + " at " +
                           file.substr(file.rfind('/') + 1) + ":" + std::to_string(line)) {}
};

/// Throws CudaError if `status` is not the library's success, which is 0 in all of them. `words` gives the
/// text of a status.
template <typename Status, typename Words>
void check_call(Status status, Words words, const char* call, const char* file, int line) {
  if (status != Status{}) throw CudaError(call, words(status), file, line);
}

/// "cudaErrorInvalidValue, invalid argument". The runtime forgets the error: later checks are not to find it.
inline std::string cuda_error_text(cudaError_t error) {
  static_cast<void>(cudaGetLastError());
  return std::string(cudaGetErrorName(error)) + ", " + cudaGetErrorString(error);
}

}  // namespace stp::cuda

#define STP_CUDA(call) \
  ::stp::cuda::check_call((call), ::stp::cuda::cuda_error_text, #call, __FILE__, __LINE__)
#define STP_CUDNN(call) ::stp::cuda::check_call((call), ::cudnnGetErrorString, #call, __FILE__, __LINE__)
