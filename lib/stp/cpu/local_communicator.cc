#include "stp/cpu/local_communicator.h"

#include <utility>

namespace stp::cpu {

void LocalCommunicator::enter(Stream& stream, CallPart part, const CallId& id, size_t party) {
  CpuStream& worker = cpu_stream(stream);
  worker.enqueue_waiting([group = group_, counts = counts(), &worker, part = std::move(part), id, party] {
    const auto call = group->call(id);
    if (call->enter(party, part, worker)) {
      group->forget(id);
      call->open(worker.run());
    }
    call->finish(worker);
    counts->count(part.kind, part.sent_bytes());
  });
}

}  // namespace stp::cpu
