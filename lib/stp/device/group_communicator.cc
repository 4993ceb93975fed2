#include "stp/device/group_communicator.h"

#include <stdexcept>

namespace stp {

void GroupCommunicator::number(Stream& stream, CallPart part, int from, int to) {
  const CallId id{from, to, next_[{from, to}]++};
  const auto party = static_cast<size_t>(!id.transfer() ? index_ : part.kind == CallKind::send ? 0 : 1);
  enter(stream, std::move(part), id, party);
}

void GroupCommunicator::all_reduce(Stream& stream, Reduce reduce, const Tensor& tensor) {
  if (size_ > 1) number(stream, {CallKind::all_reduce, reduce, tensor, tensor}, -1, -1);
}

void GroupCommunicator::all_gather(Stream& stream, const Tensor& in, const Tensor& out) {
  number(stream, {CallKind::all_gather, Reduce::sum, in, out}, -1, -1);
}

void GroupCommunicator::reduce_scatter(Stream& stream, const Tensor& in, const Tensor& out) {
  number(stream, {CallKind::reduce_scatter, Reduce::sum, in, out}, -1, -1);
}

void GroupCommunicator::send(Stream& stream, const Tensor& tensor, int to) {
  if (to == index_ || to < 0 || to >= size_) throw std::logic_error("a send to no other member");
  number(stream, {CallKind::send, Reduce::sum, tensor, {}}, index_, to);
}

void GroupCommunicator::receive(Stream& stream, const Tensor& tensor, int from) {
  if (from == index_ || from < 0 || from >= size_) throw std::logic_error("a receive from no other member");
  number(stream, {CallKind::receive, Reduce::sum, {}, tensor}, from, index_);
}

}  // namespace stp
