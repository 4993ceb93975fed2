// The CPU backend. A stream is a queue of tasks for a few threads. Groups use shared memory, and messages
// across processes. GEMMs are OpenBLAS's, one thread each.
#pragma once

#include <functional>
#include <memory>

#include "stp/device/backend.h"
#include "stp/emulation/link_emulation.h"

namespace stp::cpu {

/// Replaces the kernels of a device (the first argument), for tests.
using ReplaceKernels = std::function<std::unique_ptr<Kernels>(std::unique_ptr<Kernels>, Device&)>;

/// Supports f32, f64 and bf16 (correct but slow: computed in f32). `of_run`: the processes of the run, which
/// must outlive it; this process drives its ranks_of_process(), and all make their backends in the same
/// order. Null: this process drives all ranks.
std::unique_ptr<Backend> make_backend(const BackendOptions& options, Processes* of_run = nullptr,
                                      const ReplaceKernels& replace = {});

/// One rank of a world of options.world_size, alone; emulated links carry all its groups.
std::unique_ptr<Backend> make_replay_backend(const BackendOptions& options, const Replay& replay);

/// Total seconds and floating-point operations of a device's streams in BLAS. Throws std::bad_cast for other
/// backends.
struct BlasUse {
  double seconds = 0, flops = 0;
};
bool counts_blas(const Backend& backend);
BlasUse blas_use(Backend& backend, int rank);

}  // namespace stp::cpu
