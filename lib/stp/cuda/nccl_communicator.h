// NCCL's groups as communicators of the runtime: calls are made where the work of their streams is issued.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "stp/cuda/nccl_session.h"
#include "stp/device/communicator.h"

namespace stp::cuda {

/// A call to be made when its stream's turn comes: with what NCCL knows the stream by, and for whom it is
/// ("rank 3, tp, F0.1").
using NcclCall = std::function<void(cudaStream_t stream, const std::string& where)>;
/// Puts a call behind all work that the stream was given so far.
using NcclEnqueue = std::function<void(Stream& stream, NcclCall call)>;
/// On streams of the CUDA backend.
void enqueue_on_cuda_stream(Stream& stream, NcclCall call);

/// The end of `members[index]` in a group of the session; members ask for it in the same order. Tensors are
/// the CUDA backend's. Of a group of one rank NCCL knows nothing. In a group of two that is not for
/// collectives alone the first can send to the second from the start; NCCL connects all others at their first
/// transfer, where the host of one waits for the host of the other. A call that the group is not for is a
/// std::logic_error: it would make such a connection in the midst of a step.
std::unique_ptr<Communicator> make_nccl_communicator(NcclSession& session, const std::string& name,
                                                     const std::vector<int>& members, int index,
                                                     GroupUse use = GroupUse::any,
                                                     NcclEnqueue enqueue = enqueue_on_cuda_stream);

}  // namespace stp::cuda
