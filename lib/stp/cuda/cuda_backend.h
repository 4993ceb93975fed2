// The CUDA backend: the process gives its ranks' work to one GPU. All ranks of a run share the GPU
// (make_backend), or the process has one rank. Its peers then have their own GPUs (nccl/nccl_backend.h) or do
// not exist (make_replay_backend).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "stp/base/json_input.h"
#include "stp/cuda/cuda_device.h"
#include "stp/device/backend.h"
#include "stp/emulation/emulated_group.h"

namespace stp::cuda {

/// Makes all ranks on GPU number `gpu`. Supports bf16 and f32. Throws InputError like check_gpu().
std::unique_ptr<Backend> make_backend(const BackendOptions& options, int gpu = 0);
/// Makes one rank of a world of options.world_size, alone; emulated links carry all its groups.
std::unique_ptr<Backend> make_replay_backend(const BackendOptions& options, const Replay& replay);

/// Returns "" if GPU number `gpu` and its driver fulfil this backend's requirements; else the reason why not.
/// Tests that need a GPU are then skipped.
std::string lack_of_gpu(int gpu = 0);
/// Throws InputError with lack_of_gpu(), unless it is "".
void check_gpu(int gpu = 0);
/// The GPU of a process: the one with its number on the node, or the only one that the launcher shows it.
int gpu_of(int index_on_node);
/// Bytes of the GPU's memory, used and free. Throws CudaError.
double gpu_memory(int gpu = 0);
/// The GPU's facts for records, with MLPerf's names if they exist: accelerator_model_name,
/// accelerator_memory_capacity, compute capability, multiprocessors, versions of driver and runtime, and the
/// library of the attention kernels. Throws CudaError.
SharedJson gpu_facts(int gpu = 0);

/// The common part of all CUDA backends: this process's ranks on one GPU. Groups are of ranks that share it.
class CudaBackend : public BackendOf<CudaRun, CudaDevice> {
 public:
  /// Throws InputError like check_gpu(), and std::logic_error for ranks outside the world.
  CudaBackend(const BackendOptions& options, const std::vector<int>& ranks, int gpu,
              Processes* of_run = nullptr);

  [[nodiscard]] std::string name() const override { return "cuda"; }
  [[nodiscard]] std::optional<int> ranks_per_device() const override {
    return static_cast<int>(ranks().size());
  }
  std::unique_ptr<Group> group(const std::string& name, const std::vector<int>& members,
                               GroupUse use) override;
};

}  // namespace stp::cuda
