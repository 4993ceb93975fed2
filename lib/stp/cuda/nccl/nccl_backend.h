// The CUDA backend with one process per GPU. Its groups use NCCL.
#pragma once

#include <memory>

#include "stp/cuda/nccl/nccl_tuning.h"
#include "stp/device/backend.h"
#include "stp/processes/processes.h"

namespace stp::cuda {

/// Makes the rank with this process's number, on the GPU with its number on the node or on its only visible
/// GPU. `processes` must outlive it. All processes make and end their backends together; synchronise the
/// device before it ends. Types are those of make_backend(). Throws InputError like check_gpu(), nccl() and
/// NcclGroups, and if options.world_size is not the number of processes.
std::unique_ptr<Backend> make_nccl_backend(const BackendOptions& options, Processes& processes);

/// Sets what the driver reads at its first call. Throws InputError for invalid options.
void prepare_for_nccl(const std::vector<std::string>& nccl_options);

}  // namespace stp::cuda
