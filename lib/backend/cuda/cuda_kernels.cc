#include "stp/cuda/cuda_kernels.h"

#include <stdexcept>

namespace stp {

std::unique_ptr<Kernels> make_cuda_kernels(CudaDevice&) {
  throw std::logic_error("the CUDA backend has no kernels");
}

}  // namespace stp
