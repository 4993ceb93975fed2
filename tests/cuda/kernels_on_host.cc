// The kernels that the CUDA backend's own work needs, for a program without a device; and none of training.
#include "support/simt_on_streams.h"
// The above before what uses it.
#include "stp/cuda/cuda_kernels.h"
#include "stp/cuda/local_reduce.cu"

namespace stp {

std::unique_ptr<Kernels> make_cuda_kernels(CudaDevice&) { return nullptr; }

}  // namespace stp
