// Groups whose other members do not exist (lib/stp/emulation/emulated_group.h): a kernel on the rank's own
// GPU takes the time of their links, and moves the bytes.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "stp/cuda/cuda_device.h"
#include "stp/emulation/emulated_group.h"

namespace stp::cuda {

/// `device`, which is the rank's, outlives it.
std::unique_ptr<EmulatedGroup> make_emulated_group(CudaDevice& device, std::string name, const Replay& replay,
                                                   const std::vector<int>& members);

}  // namespace stp::cuda
