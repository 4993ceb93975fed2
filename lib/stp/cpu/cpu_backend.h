// The CPU backend: ranks are threads of this process, a stream is a worker thread with a queue, communicators
// are `local` (through shared memory), matrix products are OpenBLAS's, one thread each.
#pragma once

#include <memory>

#include "stp/device/backend.h"
#include "stp/emulation/pacing.h"

namespace stp::cpu {

/// Types f32, f64, and bf16 by way of f32: as right, and slower.
std::unique_ptr<Backend> make_backend(const BackendOptions& options);

/// One rank of a world of options.world_size, alone; all its communicators are paced.
std::unique_ptr<Backend> make_replay_backend(const BackendOptions& options, const Replay& replay);

/// Seconds and floating-point operations that a device's streams spent in BLAS so far. No other backend
/// counts them: std::bad_cast.
struct BlasUse {
  double seconds = 0, flops = 0;
};
bool counts_blas(const Backend& backend);
BlasUse blas_use(Backend& backend, int rank);

}  // namespace stp::cpu
