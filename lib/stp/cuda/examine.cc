#include "stp/cuda/examine.h"

#include <cuda_runtime_api.h>

#include <cmath>
#include <exception>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "stp/base/error.h"
#include "stp/cuda/cuda_device.h"
#include "stp/cuda/kernels/launch.h"
#include "stp/cuda/kernels/pause.h"
#include "stp/cuda/libraries/cudnn_attention.h"
#include "stp/cuda/libraries/shared_library.h"
#include "stp/device/self_check.h"

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

const std::string kCublasLtOfBuild = "libcublasLt.so." + std::to_string(CUDART_VERSION / 1000),
                  kNccl2 = "libnccl.so.2";
std::string cublas_lt_version(const SharedLibrary& loaded) {
  return version_by_value(loaded, "cublasLtGetVersion");
}
std::string nccl_version(const SharedLibrary& loaded) { return version_by_pointer(loaded, "ncclGetVersion"); }

// 13000 is 13.0.
std::string cuda_version(int number) {
  return "CUDA " + std::to_string(number / 1000) + "." + std::to_string(number % 1000 / 10);
}

Finding driver() {
  int version = 0;
  if (cudaDriverGetVersion(&version) != cudaSuccess || version == 0)
    return {"driver", State::absent,
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
  try {
    set_current_gpu(gpu);  // else the question opens a context on another GPU
  } catch (const CudaError& error) {
    return {"GPU", State::missing, what + ": " + error.what()};
  }
  if (!has_code_for_device())
    return {"GPU", State::missing,
            what + ": these programs have no code for it; build with CMAKE_CUDA_ARCHITECTURES=native"};
  return {"GPU", State::works, what};
}

std::set<CudaAttention>& distrusted() {
  static std::set<CudaAttention> ways;
  return ways;
}

// Heads of 64 and of 128 elements, on tokens that fill no tile.
std::vector<double> attention_by(CudaAttention way, Backend& backend) {
  std::vector<double> all;
  for (const int head_dim : {64, 128}) {
    auto& device = dynamic_cast<CudaDevice&>(backend.device(0));
    CudaKernels kernels(device, way);
    const auto found =
        attention_and_gradient(backend, kernels, DType::bf16,
                               {.batch = 1, .seq = 72, .q_heads = 2, .kv_heads = 1, .head_dim = head_dim});
    all.insert(all.end(), found.begin(), found.end());
  }
  return all;
}

// What replays rely on: the clock's steps.
Finding clock_of(Backend& backend) {
  constexpr double kFine = 2000;  // nanoseconds
  const double step = measured_clock_step_ns(dynamic_cast<CudaDevice&>(backend.device(0)));
  return {"clock", step <= kFine ? State::works : State::falls_back,
          "moves in steps of " + shown("%g", step) + " ns" +
              (step <= kFine ? "" : "; times of emulated links are no more exact than that")};
}

}  // namespace

bool is_trusted(CudaAttention attention) { return !distrusted().contains(attention); }

std::vector<Finding> examine_attention(const std::function<std::vector<double>(CudaAttention)>& run,
                                       bool has_cudnn) {
  constexpr double kMostError = 0x1p-5;  // bf16's rounding, of values and of probabilities, is below
  Findings all;
  const std::vector<double> plain = run(CudaAttention::plain);
  const auto compare = [&](CudaAttention way, const std::string& name, const std::string& instead) {
    const std::vector<double> found = run(way);
    double error = 0, size = 0;
    for (size_t i = 0; i < plain.size(); ++i) {
      error += std::pow(found.at(i) - plain[i], 2);
      size += std::pow(plain[i], 2);
    }
    const bool right = std::sqrt(error) <= kMostError * std::sqrt(size);  // not if it is NaN
    if (!right) distrusted().insert(way);
    all.add({name, right ? State::works : State::falls_back,
             right ? "as the plain kernels" : "gives other numbers than the plain kernels; " + instead});
  };
  compare(CudaAttention::tensor_cores, "attention by tensor cores", "the plain kernels take its place");
  if (has_cudnn) compare(CudaAttention::cudnn, "attention by cuDNN", "our own kernels take its place");
  return all.all();
}

SharedJson gpu_and_library_facts(int gpu) {
  nlohmann::json facts = *gpu_facts(gpu);
  const auto add = [&](const char* name, const std::string& soname, const auto& version) {
    try {
      facts[name] = version(SharedLibrary(soname));
    } catch (const InputError&) {  // the library is not there
      facts[name] = nullptr;
    }
  };
  add("cublas_lt_version", kCublasLtOfBuild, cublas_lt_version);
  add("nccl_version", kNccl2, nccl_version);
  facts["cudnn_version"] = nullptr;
  if (lack_of_cudnn_attention().empty()) facts["cudnn_version"] = cudnn_version();
  return std::make_shared<const nlohmann::json>(facts);
}

std::vector<Finding> examine(int gpu) {
  Findings found;
  found.add(driver());
  found.add(device(gpu));
  found.add(library("cuBLASLt", kCublasLtOfBuild, cublas_lt_version, State::missing, ""));
  found.add(library("NCCL", kNccl2, nccl_version, State::falls_back, "; without it a run has one GPU"));
  const std::string attention = lack_of_cudnn_attention();
  found.add(
      {"attention by cuDNN", attention.empty() ? State::works : State::falls_back,
       attention.empty() ? "where it takes the shape" : attention + "; our own kernels take its place"});
  if (!lack_of(found.all()).empty()) return found.all();
  try {
    const auto backend = make_backend({.world_size = 1}, gpu);
    found.add({"context", State::works, "with a handle of each library"});
    found.add(clock_of(*backend));
    found.append(
        examine_attention([&](CudaAttention way) { return attention_by(way, *backend); }, attention.empty()));
  } catch (const std::exception& error) {
    found.add({"self-check", State::missing, error.what()});
  }
  return found.all();
}

}  // namespace stp::cuda
