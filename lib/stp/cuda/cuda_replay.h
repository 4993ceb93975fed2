// One rank of a world alone on a GPU: its own kernels, and in place of communication with others a kernel
// that takes its time and moves its bytes.
#pragma once

#include <memory>
#include <vector>

#include "stp/cuda/cuda_device.h"
#include "stp/device/backend.h"
#include "stp/emulation/paced_communicator.h"
#include "stp/emulation/pacing.h"

namespace stp::cuda {

/// See lib/stp/emulation/paced_communicator.h: `device` outlives it. Throws CudaError.
std::unique_ptr<PacedCommunicator> make_paced_cuda_communicator(CudaDevice& device, const Replay& replay,
                                                                const std::vector<int>& members, int index);

/// Types as make_backend's. Throws InputError as check_gpu does.
std::unique_ptr<Backend> make_replay_backend(const BackendOptions& options, const Replay& replay,
                                             int gpu = 0);

}  // namespace stp::cuda
