// The CUDA backend of one process per GPU: groups are NCCL's.
#pragma once

#include <memory>

#include "stp/cuda/nccl/nccl_tuning.h"
#include "stp/device/backend.h"
#include "stp/processes/processes.h"

namespace stp::cuda {

/// The rank of this process's number, on the GPU of its place on the node, or on the only one that it sees.
/// `processes` outlives it; all of them make it, and end it, together. Synchronise the device before it ends.
/// Types as make_backend's. Throws InputError as check_gpu, nccl() and NcclGroups do, and where
/// options.world_size is not the number of processes.
std::unique_ptr<Backend> make_nccl_backend(const BackendOptions& options, Processes& processes);

/// What the driver is to know before it is first called. Throws InputError for options that make no sense.
void prepare_for_nccl(const std::vector<std::string>& nccl_options);

}  // namespace stp::cuda
