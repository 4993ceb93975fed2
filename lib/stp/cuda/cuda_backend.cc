#include "stp/cuda/cuda_backend.h"

#include <cstdlib>
#include <map>
#include <stdexcept>
#include <utility>

#include "stp/base/error.h"
#include "stp/cuda/cuda_check.h"
#include "stp/cuda/cuda_device.h"
#include "stp/cuda/cuda_local_communicator.h"

namespace stp::cuda {
namespace {

class CudaBackend : public Backend {
 public:
  CudaBackend(const BackendOptions& options, int gpu) : run_(options.deadline_s, options.world_size, gpu) {
    for (int rank = 0; rank < options.world_size; ++rank)
      devices_.push_back(std::make_unique<CudaDevice>(run_, rank, options));
  }

  [[nodiscard]] std::string name() const override { return "cuda"; }
  [[nodiscard]] int world_size() const override { return static_cast<int>(devices_.size()); }
  [[nodiscard]] std::vector<int> ranks() const override {
    std::vector<int> all(devices_.size());
    for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int>(i);
    return all;
  }
  Device& device(int rank) override { return *devices_.at(rank); }
  [[nodiscard]] std::optional<int> ranks_per_device() const override { return world_size(); }

  std::unique_ptr<Communicator> communicator(const std::string& name, const std::vector<int>& members,
                                             int index, GroupUse) override {
    return std::make_unique<CudaLocalCommunicator>(groups_.of(name, members, index), index);
  }

  RunGuard& guard() override { return run_.guard; }
  void describe_with(DescribeOp describe) override { run_.describe_with(std::move(describe)); }

 private:
  CudaRun run_;
  std::vector<std::unique_ptr<CudaDevice>> devices_;  // by rank
  Groups<CudaLocalCall> groups_;
};

// What the driver looks at once, when it is first called; what the user has set stays. Streams share the
// hardware's queues, by default eight, and hold each other up in them. And a kernel that is loaded at its
// first launch, as by default, may have the host wait for the GPU, which may be waiting for a peer's call
// that this host's next ones would bring about.
void set_up_driver() {
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", /*overwrite=*/0);
  setenv("CUDA_MODULE_LOADING", "EAGER", /*overwrite=*/0);
}

}  // namespace

std::string lack_of_gpu(int gpu) {
  set_up_driver();
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

double gpu_memory(int gpu) {
  size_t free = 0, total = 0;
  set_current_gpu(gpu);
  STP_CUDA(cudaMemGetInfo(&free, &total));
  return static_cast<double>(total);
}

std::unique_ptr<Backend> make_backend(const BackendOptions& options, int gpu) {
  if (options.world_size < 1) throw std::logic_error("a world of no rank");
  check_gpu(gpu);
  return std::make_unique<CudaBackend>(options, gpu);
}

}  // namespace stp::cuda
