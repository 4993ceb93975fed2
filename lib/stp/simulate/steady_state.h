// The totals of a schedule's step from a simulation of the shortened schedule.
#pragma once

#include <span>

#include "stp/schedule/repetition.h"
#include "stp/simulate/simulate.h"

namespace stp {

/// `timeline` is the simulation of the program of `shortened.schedule`. If the two repetitions are alike on
/// all ranks, at a distance of equal time, all that were left out are: adds them to `step_s` and `ranks`,
/// which then are those of the whole schedule but for rounding (below 1e-9), and returns true. The ops' times
/// stay those of the shortened step. Run time: O(ops).
///
/// Proof. Let A and B be the two repetitions, B a time T behind A. Put n copies of A between them, each T
/// behind the one before, and move B and all behind it by n·T. Every op starts when its dependencies and the
/// op before it on its stream have ended, and runs at a speed that depends on what its rank's other lane runs
/// meanwhile. In the new timeline this holds as in the old one, if
/// - ops of A and B, one by one, have the same stream, seconds and dependencies, and times T apart;
/// - nothing before B waits for what is behind B, and nothing from B on for what is before A;
/// - on a rank, A ends before what is behind B starts, and within 2·T of its own start;
/// and no step has two timelines, because no op waits for a later one.
bool add_repetitions(const Program& program, std::span<const double> seconds, const Shortened& shortened,
                     Timeline& timeline);

}  // namespace stp
