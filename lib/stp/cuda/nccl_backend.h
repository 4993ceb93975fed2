// The CUDA backend of one process per GPU: groups are NCCL's.
#pragma once

#include <memory>

#include "stp/cuda/nccl_api.h"
#include "stp/cuda/nccl_tuning.h"
#include "stp/device/backend.h"
#include "stp/processes/rendezvous.h"

namespace stp::cuda {

/// The rank of the rendezvous' place, on the GPU of its place on the node; one backend at a time. Types as
/// make_backend's. `rendezvous`, whose guard's deadline is the run's, outlives this. Waits for the other
/// processes when it ends: synchronise the device before. Throws InputError as check_gpu, loaded_nccl and
/// NcclSession do, and where options.world_size is not that of the launcher. What fails in one process fails
/// all.
std::unique_ptr<Backend> make_nccl_backend(const BackendOptions& options, Rendezvous& rendezvous,
                                           const NcclOptions& tuning = {},
                                           const NcclApi& api = loaded_nccl());

}  // namespace stp::cuda
