#include "stp/cuda/nccl/nccl_backend.h"

#include <cstdlib>

#include "stp/base/error.h"
#include "stp/cuda/cuda_backend.h"
#include "stp/cuda/nccl/nccl_groups.h"

namespace stp::cuda {
namespace {

NcclOptions probing(NcclOptions options) {
  options.probes = true;
  return options;
}

class NcclBackend : public CudaBackend {
 public:
  NcclBackend(const BackendOptions& options, Processes& processes, int gpu)
      : CudaBackend(options, {processes.index()}, gpu, &processes),
        groups_(run(), processes, probing(read_nccl_options("--nccl", options.nccl))) {}

  std::unique_ptr<Group> group(const std::string& name, const std::vector<int>& members,
                               GroupUse use) override {
    return groups_.make_group(name, members, use);
  }

 private:
  NcclGroups groups_;
};

}  // namespace

// By default a kernel is loaded at its first launch, which may block the host until the GPU is idle. The GPU
// may be waiting for a peer's call that needs this host's next calls.
void prepare_for_nccl(const std::vector<std::string>& nccl_options) {
  read_nccl_options("--nccl", nccl_options);
  setenv("CUDA_MODULE_LOADING", "EAGER", /*overwrite=*/0);
}

std::unique_ptr<Backend> make_nccl_backend(const BackendOptions& options, Processes& processes) {
  prepare_for_nccl(options.nccl);
  if (options.world_size != processes.count())
    throw InputError("", "parallel",
                     "has " + std::to_string(options.world_size) + " ranks, but there are " +
                         std::to_string(processes.count()) + " processes, each of which drives one GPU",
                     "start as many processes as there are ranks");
  return std::make_unique<NcclBackend>(options, processes, gpu_of(processes.index_on_node()));
}

}  // namespace stp::cuda
