// A step as a trace for Perfetto (ui.perfetto.dev) and chrome://tracing.
#pragma once

#include <ostream>
#include <string>

#include "stp/simulate/simulate.h"

namespace stp {

/// Writes `timeline` in the Trace Event Format (JSON), event by event. Process = rank, thread = stream:
/// compute, tp, dp, cp, and one per p2p link under its sender. A slice per op (`cat` is its stream's kind,
/// the name as "mlp.I B0.3"), one around each block's compute (`cat` "block", the name as "F0.5&B0.3"), and
/// an arrow from each transfer to the op that consumes its tensor; only for ops that have times. Seconds
/// become µs to three decimals; unit costs count as seconds. Compute before which the rank idled for its own
/// all-reduce or exchange has the argument `waited_for`. `title` and `time_unit` go to `otherData`,
/// for plots/timelines.py.
void write_chrome_trace(std::ostream& out, const Program& program, const Timeline& timeline,
                        const std::string& title = "", const std::string& time_unit = "s");

}  // namespace stp
