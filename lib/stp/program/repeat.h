// Several steps of one Program, one behind the other.
#pragma once

#include "stp/program/program.h"

namespace stp {

/// `steps` steps of a Program with post-validation: each rank's list and each stream go on without waiting
/// for other ranks. Within a step ops depend on each other as in one step alone; an op of a later step that
/// would wait for nothing waits for its rank's last op of the step before. InputError if there would be more
/// than kMaxOps ops.
Program repeat(const Program& program, int steps);
/// The number of an op in step `step`, from 0, of `steps`.
OpId repeated(const Program& program, OpId op, int step, int steps);

}  // namespace stp
