// What backends have in common whose process drives one rank alone, on a GPU of its own.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "stp/cuda/cuda_device.h"
#include "stp/cuda/cuda_run.h"
#include "stp/device/backend.h"

namespace stp::cuda {

class CudaRankBackend : public Backend {
 public:
  /// Throws InputError as check_gpu does, and std::logic_error for a rank that the world does not have.
  CudaRankBackend(const BackendOptions& options, int rank, int gpu);
  /// Of a run of several processes; its deadline is that of `of_run`.
  CudaRankBackend(const BackendOptions& options, RunGuard& of_run, int rank, int gpu);

  [[nodiscard]] std::string name() const override { return "cuda"; }
  [[nodiscard]] int world_size() const override { return world_size_; }
  [[nodiscard]] std::vector<int> ranks() const override { return {device_.rank()}; }
  CudaDevice& device(int rank) override;
  [[nodiscard]] std::optional<int> ranks_per_device() const override { return 1; }
  RunGuard& guard() override { return run_.guard; }
  void describe_with(DescribeOp describe) override { run_.describe_with(std::move(describe)); }

 protected:
  [[nodiscard]] const CudaRun& run() const { return run_; }

 private:
  const int world_size_;
  CudaRun run_;
  CudaDevice device_;
};

}  // namespace stp::cuda
