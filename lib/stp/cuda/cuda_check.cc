#include "stp/cuda/cuda_check.h"

namespace stp::cuda {

CudaError::CudaError(const std::string& call, const std::string& words, const std::string& file, int line)
    : std::runtime_error(call.substr(0, call.find('(')) + ": " + words + " at " +
                         file.substr(file.rfind('/') + 1) + ":" + std::to_string(line)) {}

std::string cuda_error_text(cudaError_t error) {
  static_cast<void>(cudaGetLastError());
  return std::string(cudaGetErrorName(error)) + ", " + cudaGetErrorString(error);
}

}  // namespace stp::cuda
