// What a GPU is and what drives it, for records.
#pragma once

#include "stp/base/json_input.h"

namespace stp::cuda {

/// MLPerf's names where there is one: accelerator_model_name, accelerator_memory_capacity; compute
/// capability, multiprocessors, versions of driver and runtime, and whose kernels attention has. Throws
/// CudaError.
SharedJson gpu_facts(int gpu = 0);

}  // namespace stp::cuda
