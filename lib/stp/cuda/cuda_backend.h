// The CUDA backend: ranks are threads of this process that share one GPU; what their streams do is issued in
// an order in which nothing waits for what was not issued (lib/stp/cuda/issue_order.h), and groups meet in
// that GPU's memory.
#pragma once

#include <memory>
#include <string>

#include "stp/device/backend.h"

namespace stp::cuda {

/// All ranks on the GPU of that number. Types bf16 and f32. Throws InputError as check_gpu does.
std::unique_ptr<Backend> make_backend(const BackendOptions& options, int gpu = 0);

/// "" where there is a GPU of that number, a driver for it, and what this backend asks of both; else what is
/// lacking. With it, tests that need one are skipped.
std::string lack_of_gpu(int gpu = 0);
/// Throws InputError, which says what is lacking.
void check_gpu(int gpu = 0);
/// Bytes of its memory, used and free. Throws CudaError.
double gpu_memory(int gpu = 0);

}  // namespace stp::cuda
