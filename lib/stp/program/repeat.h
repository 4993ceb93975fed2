// Repeats a Program over several steps.
#pragma once

#include "stp/program/program.h"

namespace stp {

/// Returns `steps` steps of a Program with post-validation. Each rank's list and streams continue from step
/// to step without waiting for other ranks. Within a step, dependencies stay as they are. In later steps, an
/// op without dependencies waits for its rank's last op of the step before. Throws InputError if there would
/// be more than kMaxOps ops.
Program repeat(const Program& program, int steps);
/// The number of `op` of one step in step `step` (from 0) of `steps`.
OpId repeated(const Program& program, OpId op, int step, int steps);

}  // namespace stp
