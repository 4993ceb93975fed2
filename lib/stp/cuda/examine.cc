#include "stp/cuda/examine.h"

#include <cuda_runtime_api.h>

#include <nlohmann/json.hpp>
#include <string>

#include "stp/base/error.h"
#include "stp/cuda/cuda_backend.h"
#include "stp/cuda/kernels/launch.h"
#include "stp/cuda/libraries/cudnn_attention.h"
#include "stp/cuda/libraries/shared_library.h"

namespace stp::cuda {
namespace {

using State = Finding::State;

// A library as the loader finds it; its version by a function of its own.
template <typename Version>
Finding library(const std::string& what, const std::string& soname, Version version, State without,
                const std::string& instead) {
  try {
    const SharedLibrary loaded(soname);
    return {what, State::works, version(loaded) + ", " + loaded.path()};
  } catch (const InputError& error) {
    return {what, without, error.what() + instead};
  }
}

// By a function that returns the number, or sets one (NCCL).
std::string version_by_value(const SharedLibrary& library, const char* name) {
  return std::to_string(library.function<size_t()>(name)());
}
std::string version_by_pointer(const SharedLibrary& library, const char* name) {
  int version = 0;
  library.function<int(int*)>(name)(&version);
  return std::to_string(version);
}

// 13000 is 13.0.
std::string cuda_version(int number) {
  return "CUDA " + std::to_string(number / 1000) + "." + std::to_string(number % 1000 / 10);
}

Finding driver() {
  int version = 0;
  if (cudaDriverGetVersion(&version) != cudaSuccess || version == 0)
    return {"driver", State::missing,
            "no NVIDIA driver is installed; these programs need one for " + cuda_version(CUDART_VERSION)};
  return {"driver", version / 1000 >= CUDART_VERSION / 1000 ? State::works : State::missing,
          "for " + cuda_version(version) + " and older; these programs are built with " +
              cuda_version(CUDART_VERSION)};
}

Finding device(int gpu) {
  if (const std::string lack = lack_of_gpu(gpu); !lack.empty()) return {"GPU", State::missing, lack};
  const SharedJson facts = gpu_facts(gpu);
  const std::string what = facts->at("accelerator_model_name").get<std::string>() + ", " +
                           facts->at("accelerator_memory_capacity").get<std::string>() +
                           ", compute capability " + facts->at("compute_capability").get<std::string>();
  if (!has_code_for_device())
    return {"GPU", State::missing,
            what + ": these programs have no code for it; build with CMAKE_CUDA_ARCHITECTURES=native"};
  return {"GPU", State::works, what};
}

}  // namespace

std::vector<Finding> examine(int gpu) {
  const std::string major = std::to_string(CUDART_VERSION / 1000);
  const std::string attention = lack_of_cudnn_attention();
  return {driver(),
          device(gpu),
          library(
              "cuBLASLt", "libcublasLt.so." + major,
              [](const SharedLibrary& loaded) { return version_by_value(loaded, "cublasLtGetVersion"); },
              State::missing, ""),
          library(
              "NCCL", "libnccl.so.2",
              [](const SharedLibrary& loaded) { return version_by_pointer(loaded, "ncclGetVersion"); },
              State::falls_back, "; without it a run has one GPU"),
          {"attention by cuDNN", attention.empty() ? State::works : State::falls_back,
           attention.empty() ? "where it takes the shape" : attention + "; our own kernels take its place"}};
}

}  // namespace stp::cuda
