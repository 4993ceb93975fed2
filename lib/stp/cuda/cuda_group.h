// The groups of the CUDA backend, but NCCL's.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "stp/cuda/cuda_device.h"
#include "stp/device/group.h"
#include "stp/emulation/emulated_group.h"

namespace stp::cuda {

/// Of ranks that share one GPU, where all buffers are in reach: one kernel, or copies, do a call's whole
/// work, on the stream of the first part, which waits for the other parts' streams, as they do for it. Sums
/// are made in the members' order, and rounded once. Throws std::logic_error for more members than a call can
/// have.
std::unique_ptr<Group> make_local_group(std::string name, const std::vector<int>& members);

/// Whose other members do not exist: a kernel on the rank's own GPU takes the time of their links, and moves
/// the bytes. `device`, which is the rank's, outlives it.
std::unique_ptr<EmulatedGroup> make_emulated_group(CudaDevice& device, std::string name, const Replay& replay,
                                                   const std::vector<int>& members);

}  // namespace stp::cuda
