// What a GPU is and what drives it, for records.
#pragma once

#include <nlohmann/json_fwd.hpp>

namespace stp::cuda {

/// MLPerf's names where there is one: accelerator_model_name, accelerator_memory_capacity; compute
/// capability, multiprocessors, versions of driver and runtime, and whose kernels attention has. Throws
/// CudaError.
nlohmann::json gpu_facts(int gpu = 0);

}  // namespace stp::cuda
