// The CUDA backend: one GPU, which the process gives the work of its ranks to. All ranks of a run share it
// (make_backend), or the process has one rank, whose peers have GPUs of their own (nccl/nccl_backend.h) or do
// not exist (make_replay_backend).
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "stp/base/json_input.h"
#include "stp/cuda/cuda_device.h"
#include "stp/device/backend.h"
#include "stp/emulation/emulated_group.h"

namespace stp::cuda {

/// All ranks on the GPU of that number. Types bf16 and f32. Throws InputError as check_gpu does.
std::unique_ptr<Backend> make_backend(const BackendOptions& options, int gpu = 0);
/// One rank of a world of options.world_size, alone; all its groups are over emulated links.
std::unique_ptr<Backend> make_replay_backend(const BackendOptions& options, const Replay& replay,
                                             int gpu = 0);

/// "" where there is a GPU of that number, a driver for it, and what this backend asks of both; else what is
/// lacking. With it, tests that need one are skipped.
std::string lack_of_gpu(int gpu = 0);
/// Throws InputError, which says what is lacking.
void check_gpu(int gpu = 0);
/// The GPU of a process: that of its place on the node, or the only one that the launcher lets it see.
int gpu_of(int index_on_node);
/// Bytes of its memory, used and free. Throws CudaError.
double gpu_memory(int gpu = 0);
/// What it is and what drives it, for records. MLPerf's names where there is one: accelerator_model_name,
/// accelerator_memory_capacity; compute capability, multiprocessors, versions of driver and runtime, and
/// whose kernels attention has. Throws CudaError.
SharedJson gpu_facts(int gpu = 0);

/// What is the same of all of them: the ranks of this process, on one GPU. Groups are of ranks that share it.
class CudaBackend : public Backend {
 public:
  /// Throws InputError as check_gpu does, and std::logic_error for ranks that the world does not have.
  CudaBackend(const BackendOptions& options, const std::vector<int>& ranks, int gpu,
              Progress* progress = nullptr);

  [[nodiscard]] std::string name() const override { return "cuda"; }
  [[nodiscard]] int world_size() const override { return world_size_; }
  [[nodiscard]] std::vector<int> ranks() const override;
  CudaDevice& device(int rank) override { return *devices_.at(rank); }
  [[nodiscard]] std::optional<int> ranks_per_device() const override {
    return static_cast<int>(devices_.size());
  }
  std::unique_ptr<Group> group(const std::string& name, const std::vector<int>& members,
                               GroupUse use) override;
  Processes& processes() override { return processes_; }
  RunGuard& guard() override { return run_.guard; }
  void describe_with(DescribeOp describe) override { run_.describe_with(std::move(describe)); }

 protected:
  CudaRun& run() { return run_; }

 private:
  const int world_size_;
  Processes processes_;
  CudaRun run_;
  std::map<int, std::unique_ptr<CudaDevice>> devices_;  // by rank
};

}  // namespace stp::cuda
