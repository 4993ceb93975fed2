// A step as a trace for Perfetto (ui.perfetto.dev) and chrome://tracing.
#pragma once

#include <ostream>

#include "stp/simulate/simulate.h"

namespace stp {

/// Writes `timeline` in the Trace Event Format (JSON), event by event. Process = rank, thread = stream:
/// compute, tp, and one per p2p link under its sender. A slice per op (`cat` is its stream's kind, the name
/// as "mlp.I B0.3"), one around each block's compute (`cat` "block", the name as "F0.5&B0.3"), and an arrow
/// from each transfer to the op that takes its tensor; of ops that were timed alone. Seconds become µs to
/// three decimals; unit costs count as seconds.
void write_chrome_trace(std::ostream& out, const Program& program, const Timeline& timeline);

}  // namespace stp
