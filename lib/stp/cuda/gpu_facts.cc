#include "stp/cuda/gpu_facts.h"

#include <cuda_runtime_api.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "stp/cuda/cuda_check.h"
#include "stp/cuda/libraries/cudnn_attention.h"

namespace stp::cuda {
namespace {

// 13000 is 13.0.
std::string version(int number) {
  return std::to_string(number / 1000) + "." + std::to_string(number % 1000 / 10);
}

}  // namespace

SharedJson gpu_facts(int gpu) {
  cudaDeviceProp properties{};
  int driver = 0, runtime = 0;
  STP_CUDA(cudaGetDeviceProperties(&properties, gpu));
  STP_CUDA(cudaDriverGetVersion(&driver));
  STP_CUDA(cudaRuntimeGetVersion(&runtime));
  const nlohmann::json facts = {
      {"accelerator_model_name", properties.name},
      {"accelerator_memory_capacity", std::to_string(properties.totalGlobalMem >> 20) + " MiB"},
      {"compute_capability", std::to_string(properties.major) + "." + std::to_string(properties.minor)},
      {"multiprocessors", properties.multiProcessorCount},
      {"driver_cuda_version", version(driver)},
      {"runtime_cuda_version", version(runtime)},
      {"attention", has_cudnn_attention() ? "cudnn where it takes the shape" : "own kernels"}};
  return std::make_shared<const nlohmann::json>(facts);
}

}  // namespace stp::cuda
