#include "stp/emulation/link_emulation.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace stp {
namespace {

constexpr int64_t kLine = 16;  // bytes that a thread moves at a time

int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Bytes that a member copies in its own memory: from its input into link buffers, there a second time
// (link_bytes_again()), and to its output.
double copied_bytes(CallKind kind, double bytes, int ranks) {
  switch (kind) {
    case CallKind::all_reduce:
      return bytes * (2 + static_cast<double>(ranks - 2) / ranks);
    case CallKind::all_gather:
    case CallKind::all_to_all:
      return bytes * 2;
    case CallKind::reduce_scatter:
      return bytes * (1 + 1.0 / ranks);
    case CallKind::transfer:
      return bytes;
  }
  throw std::logic_error("an invalid kind of call");
}

}  // namespace

int link_ctas(const Replay& replay, CallKind kind, int64_t bytes, const CallTime& time, int ranks) {
  const int least = kind == CallKind::transfer ? replay.transfer_ctas : replay.collective_ctas;
  if (time.transfer_s <= 0) return least;  // no number of CTAs meets that time
  const double rate = copied_bytes(kind, static_cast<double>(bytes), ranks) / time.transfer_s;
  const double wanted = std::min<double>(replay.most_ctas, std::ceil(rate / replay.cta_bytes_per_s));
  return std::max(least, static_cast<int>(wanted));
}

LinkEmulation emulate_links(int64_t bytes, const CallTime& time, int ctas, int64_t piece) {
  const auto possible = [](double seconds) { return seconds >= 0 && std::isfinite(seconds); };
  if (bytes < 0 || !possible(time.latency_s) || !possible(time.transfer_s) || ctas < 1 || piece < 1)
    throw std::logic_error("links that cannot be emulated");
  constexpr double kNanoseconds = 1e9;
  LinkEmulation link;
  link.bytes = bytes;
  link.span = std::max<int64_t>(kLine, divide_up(divide_up(bytes, ctas), kLine) * kLine);
  link.ctas = std::max(1, static_cast<int>(divide_up(bytes, link.span)));
  link.piece = divide_up(piece, kLine) * kLine;
  link.latency_ns = kNanoseconds * time.latency_s;
  link.transfer_ns = kNanoseconds * time.transfer_s;
  return link;
}

}  // namespace stp
