#include "stp/emulation/pacing.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace stp {
namespace {

constexpr int64_t kLine = 16;  // bytes that a thread moves at a time

int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace

double link_share(CallKind kind, int ranks) {
  const double others = static_cast<double>(ranks - 1) / ranks;
  switch (kind) {
    case CallKind::all_reduce:
      return 2 * others;
    case CallKind::all_gather:
    case CallKind::reduce_scatter:
      return others;
    case CallKind::send:
    case CallKind::receive:
      return 1;
  }
  throw std::logic_error("a call of no kind");
}

Pace make_pace(int64_t bytes, const CallTime& time, int ctas, int64_t piece) {
  const auto possible = [](double seconds) { return seconds >= 0 && std::isfinite(seconds); };
  if (bytes < 0 || !possible(time.latency_s) || !possible(time.transfer_s) || ctas < 1 || piece < 1)
    throw std::logic_error("a pace that nothing can keep");
  constexpr double kNanoseconds = 1e9;
  Pace pace;
  pace.bytes = bytes;
  pace.span = std::max<int64_t>(kLine, divide_up(divide_up(bytes, ctas), kLine) * kLine);
  pace.ctas = std::max(1, static_cast<int>(divide_up(bytes, pace.span)));
  pace.piece = divide_up(piece, kLine) * kLine;
  pace.latency_ns = kNanoseconds * time.latency_s;
  pace.transfer_ns = kNanoseconds * time.transfer_s;
  return pace;
}

}  // namespace stp
