#include "stp/emulation/paced_communicator.h"

#include <chrono>
#include <sstream>
#include <stdexcept>
#include <utility>

namespace stp {
namespace {

void check(bool fits) {
  if (!fits) throw std::logic_error("a paced call whose tensors or peer do not fit");
}

}  // namespace

void PacedCall::refuse_endless(const RunGuard& guard) const {
  const std::chrono::duration<double> takes(std::chrono::duration<double, std::nano>(pace.total_ns()));
  if (takes <= guard.deadline()) return;
  std::ostringstream text;
  text << part.text() << " takes " << takes.count()
       << " s at the pace of its links, more than the run's deadline of " << guard.deadline().count() << " s";
  throw std::runtime_error(text.str());
}

PacedCommunicator::PacedCommunicator(Replay replay, std::vector<int> members, int index, int64_t piece)
    : replay_(std::move(replay)), members_(std::move(members)), index_(index), piece_(piece) {
  check(index >= 0 && index < static_cast<int>(members_.size()));
}

void PacedCommunicator::all_reduce(Stream& stream, Reduce reduce, const Tensor& tensor) {
  if (size() > 1) give(stream, {CallKind::all_reduce, reduce, tensor, tensor});
}

void PacedCommunicator::all_gather(Stream& stream, const Tensor& in, const Tensor& out) {
  check(in.columns == out.columns && in.type == out.type && out.rows == size() * in.rows);
  give(stream, {CallKind::all_gather, Reduce::sum, in, out});
}

void PacedCommunicator::reduce_scatter(Stream& stream, const Tensor& in, const Tensor& out) {
  check(in.columns == out.columns && in.type == out.type && in.rows == size() * out.rows);
  give(stream, {CallKind::reduce_scatter, Reduce::sum, in, out});
}

void PacedCommunicator::send(Stream& stream, const Tensor& tensor, int to) {
  check(to != index_ && to >= 0 && to < size());
  give(stream, {CallKind::send, Reduce::sum, tensor, {}});
}

void PacedCommunicator::receive(Stream& stream, const Tensor& tensor, int from) {
  check(from != index_ && from >= 0 && from < size());
  give(stream, {CallKind::receive, Reduce::sum, {}, tensor});
}

void PacedCommunicator::give(Stream& stream, CallPart part) {
  const bool whole_is_out = part.kind == CallKind::all_gather || part.kind == CallKind::receive;
  const bool transfer = part.kind == CallKind::send || part.kind == CallKind::receive;
  const auto bytes = static_cast<int64_t>((whole_is_out ? part.out : part.in).bytes());
  const CallTime time = replay_.times(part.kind, static_cast<double>(bytes), members_);
  const int ctas = transfer ? replay_.transfer_ctas : replay_.collective_ctas;
  enter(stream, {std::move(part), make_pace(bytes, time, ctas, piece_), size(), index_});
}

}  // namespace stp
