// The kernels of the CUDA backend: those of launched_kernels.h, matrix products by cuBLASLt (gemm.h), and
// attention by cuDNN where it was built (cudnn_attention.h).
#pragma once

#include <memory>

#include "stp/cuda/cuda_run.h"
#include "stp/cuda/gemm.h"
#include "stp/cuda/scratch_memory.h"
#include "stp/device/kernels.h"

namespace stp::cuda {

/// Which kernels attention in bf16 goes to. What they do not take goes to the next of these, and so does all
/// else.
enum class CudaAttention { cudnn, tensor_cores, plain };

struct CudaKernelOptions {
  CudaAttention attention = CudaAttention::cudnn;
  GemmOptions gemm;
};

/// For streams of `run`, which outlives them. They outlive the streams that they were called with. Throws
/// CudaError.
std::unique_ptr<Kernels> make_cuda_kernels(CudaRun& run, const ScratchMemory& scratch,
                                           const CudaKernelOptions& options = {});

}  // namespace stp::cuda
