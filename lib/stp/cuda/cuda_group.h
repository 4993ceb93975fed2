// The groups of the CUDA backend, except NCCL's.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "stp/cuda/cuda_device.h"
#include "stp/device/group.h"
#include "stp/emulation/emulated_group.h"

namespace stp::cuda {

/// Makes a group of ranks that share one GPU, so that all buffers are in reach. One kernel, or copies, do a
/// call's whole work on the stream of the first part. That stream waits for the other parts' streams, and
/// they wait for it. Sums are made in the members' order and rounded once. Throws std::logic_error if there
/// are more members than a call supports.
std::unique_ptr<Group> make_local_group(std::string name, const std::vector<int>& members);

/// Bytes per second that one CTA of emulated links copies on this GPU. Waits for it.
double measured_cta_rate(CudaDevice& device);

/// Makes a group whose other members do not exist. A kernel on the rank's GPU takes the links' time and moves
/// the bytes. `device`, the rank's device, must outlive the group.
std::unique_ptr<EmulatedGroup> make_emulated_group(CudaDevice& device, std::string name, const Replay& replay,
                                                   const std::vector<int>& members);

}  // namespace stp::cuda
