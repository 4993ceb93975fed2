// The kernels of the CUDA backend: those of launched_kernels.h, matrix products by cuBLASLt (gemm.h), and
// attention by cuDNN where it was built (cudnn_attention.h).
#pragma once

#include <cuda_runtime_api.h>

#include <memory>

#include "stp/backend/kernels.h"
#include "stp/cuda/cuda_run.h"
#include "stp/cuda/gemm.h"

namespace stp {

/// Which kernels attention in bf16 goes to. What they do not take goes to the next of these, and so does all
/// else.
enum class CudaAttention { cudnn, tensor_cores, plain };

struct CudaKernelOptions {
  /// Where scratch memory and workspaces come from; null: the GPU's own pool.
  cudaMemPool_t pool = nullptr;
  CudaAttention attention = CudaAttention::cudnn;
  GemmOptions gemm;
};

/// For streams of `run`, which outlives them. They outlive the streams that they were called with. Throws
/// CudaError.
std::unique_ptr<Kernels> make_cuda_kernels(CudaRun& run, const CudaKernelOptions& options = {});

}  // namespace stp
