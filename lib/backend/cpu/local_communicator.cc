#include "stp/cpu/local_communicator.h"

#include <stdexcept>
#include <utility>

namespace stp {

std::shared_ptr<LocalCall> LocalGroup::call(int from, int to, int64_t number) {
  const std::lock_guard lock(mutex_);
  auto& call = calls_[{from, to, number}];
  if (!call) {
    std::string what =
        from < 0 ? "call"
                 : "transfer " + std::to_string(members_[from]) + " to " + std::to_string(members_[to]);
    what += " " + std::to_string(number) + " of group " + name_;
    call = std::make_shared<LocalCall>(what,
                                       from < 0 ? members_ : std::vector<int>{members_[from], members_[to]});
  }
  return call;
}

void LocalGroup::forget(int from, int to, int64_t number) {
  const std::lock_guard lock(mutex_);
  calls_.erase({from, to, number});
}

void LocalCommunicator::enqueue(Stream& stream, CallPart part, int from, int to) {
  const int64_t number = next_[{from, to}]++;
  const auto party = static_cast<size_t>(from < 0 ? index_ : part.kind == CallKind::send ? 0 : 1);
  CpuStream& worker = cpu_stream(stream);
  worker.enqueue_waiting(
      [group = group_, counts = counts_, &worker, part = std::move(part), from, to, number, party] {
        const auto call = group->call(from, to, number);
        if (call->enter(party, part, worker)) {
          group->forget(from, to, number);
          call->open(worker.run());
        }
        call->finish(worker);
        counts->count(part.kind, part.in ? static_cast<int64_t>(part.in.bytes()) : 0);
      });
}

void LocalCommunicator::all_reduce(Stream& stream, Reduce reduce, const Tensor& tensor) {
  if (size() > 1) enqueue(stream, {CallKind::all_reduce, reduce, tensor, tensor}, -1, -1);
}

void LocalCommunicator::all_gather(Stream& stream, const Tensor& in, const Tensor& out) {
  enqueue(stream, {CallKind::all_gather, Reduce::sum, in, out}, -1, -1);
}

void LocalCommunicator::reduce_scatter(Stream& stream, const Tensor& in, const Tensor& out) {
  enqueue(stream, {CallKind::reduce_scatter, Reduce::sum, in, out}, -1, -1);
}

void LocalCommunicator::send(Stream& stream, const Tensor& tensor, int to) {
  if (to == index_ || to < 0 || to >= size()) throw std::logic_error("a send to no other member");
  enqueue(stream, {CallKind::send, Reduce::sum, tensor, {}}, index_, to);
}

void LocalCommunicator::receive(Stream& stream, const Tensor& tensor, int from) {
  if (from == index_ || from < 0 || from >= size()) throw std::logic_error("a receive from no other member");
  enqueue(stream, {CallKind::receive, Reduce::sum, {}, tensor}, from, index_);
}

Traffic LocalCommunicator::traffic() const { return counts_->traffic(); }

}  // namespace stp
