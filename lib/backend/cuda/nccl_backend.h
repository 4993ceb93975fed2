// The CUDA backend of one process per GPU: groups are NCCL's.
#pragma once

#include <memory>
#include <optional>

#include "stp/backend/backend.h"
#include "stp/backend/bootstrap.h"
#include "stp/backend/rendezvous.h"
#include "stp/cuda/nccl_api.h"
#include "stp/cuda/nccl_tuning.h"

namespace stp {

/// The rank of `place`, on the GPU of its place on the node. Waits until all processes of the run have come,
/// and when it ends, for them to be done: synchronise the device before. Types as make_cuda_backend's.
/// Throws InputError as check_gpu, loaded_nccl, Rendezvous and NcclSession do, and where options.world_size
/// is not that of the launcher. What fails in one process fails all. `listener`: rank 0's, where it listens
/// already.
std::unique_ptr<Backend> make_nccl_backend(const BackendOptions& options, const ProcessPlace& place,
                                           const NcclOptions& tuning = {},
                                           const RendezvousOptions& rendezvous = {},
                                           const NcclApi& api = loaded_nccl(),
                                           std::optional<Listener> listener = std::nullopt);

}  // namespace stp
