#include "stp/cuda/cuda_rank_backend.h"

#include <stdexcept>

#include "stp/cuda/cuda_backend.h"

namespace stp::cuda {
namespace {

// Before anything else touches the GPU.
int checked_world(const BackendOptions& options, int rank, int gpu) {
  if (rank < 0 || rank >= options.world_size)
    throw std::logic_error("rank " + std::to_string(rank) + " of a world of " +
                           std::to_string(options.world_size));
  check_gpu(gpu);
  return options.world_size;
}

}  // namespace

CudaRankBackend::CudaRankBackend(const BackendOptions& options, int rank, int gpu)
    : world_size_(checked_world(options, rank, gpu)),
      run_(options.deadline_s, 1, gpu),
      device_(run_, rank, options) {}

CudaRankBackend::CudaRankBackend(const BackendOptions& options, RunGuard& of_run, int rank, int gpu)
    : world_size_(checked_world(options, rank, gpu)), run_(of_run, 1, gpu), device_(run_, rank, options) {}

CudaDevice& CudaRankBackend::device(int rank) {
  if (rank != device_.rank())
    throw std::logic_error("rank " + std::to_string(rank) + " is another process's");
  return device_;
}

}  // namespace stp::cuda
