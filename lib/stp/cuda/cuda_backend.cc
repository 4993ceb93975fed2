#include "stp/cuda/cuda_backend.h"

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <numeric>
#include <stdexcept>

#include "stp/base/error.h"
#include "stp/cuda/cuda_check.h"
#include "stp/cuda/cuda_group.h"
#include "stp/cuda/libraries/cudnn_attention.h"

namespace stp::cuda {
namespace {

class ReplayBackend : public CudaBackend {
 public:
  ReplayBackend(const BackendOptions& options, const Replay& replay)
      : CudaBackend(options, {replay.rank}, 0), replay_(replay) {
    // Where a CTA moves less than was assumed, links get more of them.
    replay_.cta_bytes_per_s = std::min(replay.cta_bytes_per_s, measured_cta_rate(device(replay.rank)));
  }

  std::unique_ptr<Group> group(const std::string& name, const std::vector<int>& members, GroupUse) override {
    return make_emulated_group(device(replay_.rank), name, replay_, members);
  }

 private:
  Replay replay_;
};

// Checks the options before anything uses the GPU.
const BackendOptions& checked(const BackendOptions& options, const std::vector<int>& ranks, int gpu) {
  for (const int rank : ranks)
    if (rank < 0 || rank >= options.world_size)
      throw std::logic_error("rank " + std::to_string(rank) + " of a world of " +
                             std::to_string(options.world_size));
  check_gpu(gpu);
  return options;
}

// 13000 is 13.0.
std::string version(int number) {
  return std::to_string(number / 1000) + "." + std::to_string(number % 1000 / 10);
}

}  // namespace

CudaBackend::CudaBackend(const BackendOptions& options, const std::vector<int>& ranks, int gpu,
                         Processes* of_run)
    : BackendOf(checked(options, ranks, gpu), of_run, gpu) {
  for (const int rank : ranks) add_device(rank, options);
}

std::unique_ptr<Group> CudaBackend::group(const std::string& name, const std::vector<int>& members,
                                          GroupUse) {
  return make_local_group(name, members);
}

std::unique_ptr<Backend> make_backend(const BackendOptions& options, int gpu) {
  std::vector<int> all(std::max(options.world_size, 0));
  std::iota(all.begin(), all.end(), 0);
  return std::make_unique<CudaBackend>(options, all, gpu);
}

std::unique_ptr<Backend> make_replay_backend(const BackendOptions& options, const Replay& replay) {
  return std::make_unique<ReplayBackend>(options, replay);
}

std::string lack_of_gpu(int gpu) {
  // The driver reads this variable at its first call; a user's value stays. Streams share the hardware's
  // queues, eight by default, and delay each other in them.
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", /*overwrite=*/0);
  int driver = 0, count = 0;
  if (cudaDriverGetVersion(&driver) == cudaSuccess && driver == 0) return "no NVIDIA driver is installed";
  const cudaError_t state = cudaGetDeviceCount(&count);
  if (state != cudaSuccess) return cuda_error_text(state);
  if (gpu < 0 || gpu >= count)
    return "there is no GPU " + std::to_string(gpu) + ", but " + std::to_string(count) + " are there, from 0";
  int pools = 0;
  STP_CUDA(cudaDeviceGetAttribute(&pools, cudaDevAttrMemoryPoolsSupported, gpu));
  return pools != 0 ? "" : "GPU " + std::to_string(gpu) + " does not allocate memory in the order of streams";
}

void check_gpu(int gpu) {
  if (const std::string lack = lack_of_gpu(gpu); !lack.empty())
    throw InputError("", "", "no CUDA device: " + lack, "run with --backend cpu");
}

int gpu_of(int index_on_node) { return lack_of_gpu(1).empty() ? index_on_node : 0; }

// cudaGetDeviceProperties opens no context.
double gpu_memory(int gpu) {
  cudaDeviceProp properties{};
  STP_CUDA(cudaGetDeviceProperties(&properties, gpu));
  return static_cast<double>(properties.totalGlobalMem);
}

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
      {"attention", lack_of_cudnn_attention().empty() ? "cudnn where it takes the shape" : "own kernels"}};
  return std::make_shared<const nlohmann::json>(facts);
}

}  // namespace stp::cuda
