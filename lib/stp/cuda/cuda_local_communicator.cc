#include "stp/cuda/cuda_local_communicator.h"

#include <stdexcept>
#include <utility>

#include "stp/cuda/cuda_check.h"
#include "stp/cuda/cuda_memory.h"
#include "stp/cuda/local_reduce.h"
#include "stp/device/element_type.h"

namespace stp::cuda {
namespace {

/// `to` goes on after what `from` was given so far.
void follow(CudaEvents& events, cudaStream_t from, cudaStream_t to) {
  const cudaEvent_t event = events.take();
  try {
    STP_CUDA(cudaEventRecord(event, from));
    STP_CUDA(cudaStreamWaitEvent(to, event, 0));
  } catch (...) {
    events.give_back(event);
    throw;
  }
  events.give_back(event);  // a later record does not change what waits already
}

}  // namespace

CudaLocalCall::CudaLocalCall(std::string name, const std::vector<int>& ranks)
    : JointStep(name, ranks, [this] { issue(); }), name_(std::move(name)) {
  for (const int rank : ranks) parties_.emplace_back().rank = rank;
}

bool CudaLocalCall::enter(size_t party, CallPart part, CudaStream& stream,
                          std::shared_ptr<TrafficCounter> counts) {
  const std::lock_guard lock(mutex_);
  Party& here = parties_[party];
  if (here.on != nullptr)
    throw std::logic_error(name_ + ": rank " + std::to_string(here.rank) + " came twice");
  here.part = std::move(part);
  here.stream = stream.name();
  here.op = stream.op();
  here.on = &stream;
  here.counts = std::move(counts);
  return ++come_ == parties_.size();
}

// All parties have come, and nobody changes them any more.
void CudaLocalCall::issue() {
  const CudaRun& run = parties_[0].on->run();
  std::vector<const CallParty*> parties;
  for (const Party& party : parties_) parties.push_back(&party);
  check_parts_fit(name_, run, parties);
  run.make_current();
  const cudaStream_t stream = parties_[0].on->handle();
  for (size_t party = 1; party < parties_.size(); ++party)
    follow(*run.events(), parties_[party].on->handle(), stream);
  exchange(stream);
  for (size_t party = 1; party < parties_.size(); ++party)
    follow(*run.events(), stream, parties_[party].on->handle());
  for (const Party& party : parties_) {
    party.counts->count(party.part.kind, party.part.sent_bytes());
    party.on->issued(party.op);
  }
}

void CudaLocalCall::exchange(cudaStream_t stream) const {
  const CallPart& part = parties_[0].part;
  if (part.kind == CallKind::send) {
    STP_CUDA(cudaMemcpyAsync(data<std::byte>(parties_[1].part.out), data<std::byte>(part.in), part.in.bytes(),
                             cudaMemcpyDeviceToDevice, stream));
    return;
  }
  launch::PartyBuffers buffers;
  for (const Party& party : parties_) {
    buffers.in[buffers.parties] = data<std::byte>(party.part.in);
    buffers.out[buffers.parties++] = data<std::byte>(party.part.out);
  }
  if (part.kind == CallKind::all_gather) return launch::all_gather(stream, buffers, part.in.bytes());
  with_element<__nv_bfloat16>(part.in.type, "no reduction", [&](auto element) {
    using T = decltype(element);
    if (part.kind == CallKind::all_reduce)
      launch::all_reduce<T>(stream, part.reduce, buffers, part.in.elements());
    else
      launch::reduce_scatter<T>(stream, part.reduce, buffers, part.out.elements());
  });
}

CudaLocalCommunicator::CudaLocalCommunicator(std::shared_ptr<CudaLocalGroup> group, int index)
    : GroupCommunicator(group->size(), index), group_(std::move(group)) {
  if (size() > launch::kMostParties)
    throw std::logic_error("a group of " + std::to_string(size()) + " ranks on one GPU, which takes " +
                           std::to_string(launch::kMostParties));
}

void CudaLocalCommunicator::enter(Stream& stream, CallPart part, const CallId& id, size_t party) {
  CudaStream& worker = cuda_stream(stream);
  for (const Tensor* tensor : {&part.in, &part.out})
    if (*tensor) held_memory(*tensor);
  const auto call = group_->call(id);
  if (call->enter(party, std::move(part), worker, counts())) group_->forget(id);
  worker.queue().join(worker.op(), call, party);
}

}  // namespace stp::cuda
