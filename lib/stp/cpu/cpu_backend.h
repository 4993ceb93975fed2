// The CPU backend: a stream is a worker thread with a queue, groups meet in shared memory, and across
// processes by messages; GEMMs are OpenBLAS's, one thread each.
#pragma once

#include <functional>
#include <memory>

#include "stp/device/backend.h"
#include "stp/emulation/link_emulation.h"

namespace stp::cpu {

/// Kernels of a device in place of the backend's own, which it is given: for tests.
using ReplaceKernels = std::function<std::unique_ptr<Kernels>(std::unique_ptr<Kernels>, Device&)>;

/// Types f32, f64, and bf16 by way of f32: as right, and slower. All ranks are this process's.
std::unique_ptr<Backend> make_backend(const BackendOptions& options, const ReplaceKernels& replace = {});
/// The same of several processes, which outlive it; this one drives its ranks_of_process(). All of them make
/// their backends in one order.
std::unique_ptr<Backend> make_backend(const BackendOptions& options, Processes& processes,
                                      const ReplaceKernels& replace = {});

/// One rank of a world of options.world_size, alone; all its groups are over emulated links.
std::unique_ptr<Backend> make_replay_backend(const BackendOptions& options, const Replay& replay);

/// Seconds and floating-point operations that a device's streams spent in BLAS so far. No other backend
/// counts them: std::bad_cast.
struct BlasUse {
  double seconds = 0, flops = 0;
};
bool counts_blas(const Backend& backend);
BlasUse blas_use(Backend& backend, int rank);

}  // namespace stp::cpu
