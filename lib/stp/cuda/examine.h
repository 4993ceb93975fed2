// What the CUDA backend finds of driver, GPU and libraries, for `stp doctor`.
#pragma once

#include <functional>
#include <vector>

#include "stp/cuda/cuda_backend.h"
#include "stp/cuda/kernels/cuda_kernels.h"
#include "stp/device/finding.h"

namespace stp::cuda {

/// Needs no GPU, and throws nothing: what is missing is a finding. Attention that gives other numbers than
/// the plain kernels is not used from then on.
std::vector<Finding> examine(int gpu = 0);

/// gpu_facts(), and versions as texts, null where the library is missing: cublas_lt_version, nccl_version,
/// cudnn_version. Loads them. Throws CudaError.
SharedJson gpu_and_library_facts(int gpu = 0);

/// The part of examine() that compares ways of attention: `run` returns the results of one.
std::vector<Finding> examine_attention(const std::function<std::vector<double>(CudaAttention)>& run,
                                       bool has_cudnn);
/// False after examine_attention() found it wrong.
bool is_trusted(CudaAttention attention);

}  // namespace stp::cuda
