// A step as a trace for Perfetto (ui.perfetto.dev) and chrome://tracing.
#pragma once

#include <ostream>
#include <string>

#include "stp/simulate/simulate.h"

namespace stp {

/// How many microbatches at each end of the step a trace of about 5 MB has room for; 0 if it has for all.
int microbatches_of_short_trace(const Program& program);

/// Writes `timeline` in the Trace Event Format (JSON), event by event. A process is a rank; a thread is a
/// stream: compute, tp, dp, cp, and each p2p link under its sender. Each op that has times is a slice (`cat`:
/// its stream's kind; name such as "mlp.I B0.3"). A slice spans each block's compute (`cat` "block"; name
/// such as "F0.5&B0.3"), and an arrow goes from each transfer to the op that consumes its tensor. Seconds
/// become µs with three decimals; unit costs count as seconds. Compute ops before which the rank was idle for
/// its own collective or exchange have the arguments `waited_for` and `tp_bubble` (how long, µs). `title` and
/// `time_unit` go to `otherData`, for plots/timelines.py. With `ends` > 0 only blocks of the first and the
/// last `ends` microbatches are written, and `otherData` names the others as `left_out`.
void write_chrome_trace(std::ostream& out, const Program& program, const Timeline& timeline,
                        const std::string& title = "", const std::string& time_unit = "s", int ends = 0);

}  // namespace stp
