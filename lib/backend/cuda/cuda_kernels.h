// The kernels of the CUDA backend.
#pragma once

#include <memory>

#include "stp/backend/kernels.h"

namespace stp {

class CudaDevice;

/// `device` outlives them.
std::unique_ptr<Kernels> make_cuda_kernels(CudaDevice& device);

}  // namespace stp
