#include "stp/emulation/emulated_group.h"

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <utility>

#include "stp/base/error.h"
#include "stp/device/backend.h"

namespace stp {

EmulatedUse& EmulatedUse::operator+=(const EmulatedUse& other) {
  calls += other.calls;
  late_s += other.late_s;
  latest_s = std::max(latest_s, other.latest_s);
  link_bytes += other.link_bytes;
  return *this;
}

void EmulatedUseCounter::count(double late_s, size_t link_bytes) {
  const std::lock_guard lock(mutex_);
  use_.calls += 1;
  use_.late_s += late_s;
  use_.latest_s = std::max(use_.latest_s, late_s);
  use_.link_bytes = std::max(use_.link_bytes, link_bytes);
}

EmulatedUse EmulatedUseCounter::take() {
  const std::lock_guard lock(mutex_);
  return std::exchange(use_, {});
}

void EmulatedCall::refuse_endless(const RunGuard& guard) const {
  const std::chrono::duration<double> takes(std::chrono::duration<double, std::nano>(link.total_ns()));
  if (takes <= guard.deadline()) return;
  throw std::runtime_error(Call{kind, Reduce::sum, {&part, 1}}.text() + " takes " +
                           shown("%g", takes.count()) + " s over its emulated link, more than the run's " +
                           "deadline of " + shown("%g", guard.deadline().count()) + " s");
}

EmulatedGroup::EmulatedGroup(std::string name, const Replay& replay, const std::vector<int>& members,
                             int64_t piece)
    : Group(std::move(name), members, local_members(members, {replay.rank})),
      replay_(replay),
      piece_(piece) {}

void EmulatedGroup::carry_out(const Call& call) {
  const int64_t bytes = call.bytes();
  const CallTime time = replay_.times(call.kind, static_cast<double>(bytes), members());
  const Part& part = call.parts.front();
  const bool ring =
      call.kind == CallKind::transfer && part.in && part.out;  // it copies both sent and received data
  const int ctas = link_ctas(replay_, call.kind, ring ? 2 * bytes : bytes, time, size());
  const auto give = [&](CallKind kind, const Part& of, int64_t first, int64_t count) {
    const CallTime share{first == 0 ? time.latency_s : 0,
                         bytes == 0
                             ? time.transfer_s
                             : time.transfer_s * static_cast<double>(count) / static_cast<double>(bytes)};
    carry_out(EmulatedCall{kind, of, emulate_links(count, share, ctas, piece_), size(), local().front()});
  };
  if (call.kind != CallKind::all_to_all) return give(call.kind, part, 0, bytes);
  // Like a ring's transfer; then the rest of the longer tensor, like an end of a link.
  const Tensor &in = part.in, &out = part.out;
  const int64_t both = std::min(in.elements(), out.elements());
  const auto bytes_of = [&](int64_t elements) {
    return elements * static_cast<int64_t>(stp::bytes_of(in.type));
  };
  const auto rest = [&](const Tensor& of) {
    return of.elements() > both ? of.part(both, 1, of.elements() - both) : Tensor{};
  };
  give(CallKind::transfer, {part.stream, in.part(0, 1, both), out.part(0, 1, both)}, 0, bytes_of(both));
  if (const int64_t more = bytes - bytes_of(both); more > 0)
    give(CallKind::transfer, {part.stream, rest(in), rest(out)}, bytes_of(both), more);
}

}  // namespace stp
