// One global order of a Program's ops, in which each comes behind all that it waits for.
#pragma once

#include <vector>

#include "stp/program/program.h"

namespace stp {

inline constexpr OpId kNoOp = ~OpId{0};

/// For each op, one more than the largest level among the ops that it waits for: the one before it on its
/// stream, its dependencies, and `also[op]`, if that is one (`also` is empty, or has an entry for each op,
/// kNoOp for none). An op on or behind a circle has level 0. Time and memory grow as ops and dependencies.
std::vector<uint32_t> op_levels(const Program& program, const std::vector<OpId>& also = {});

/// All ops of all ranks by level, those of one level by rank and then in the order of issue. One host thread
/// that drives all ranks and issues ops in this order never issues one before another that it waits for.
/// Throws std::runtime_error that names an op if the Program has a circle.
std::vector<OpId> topological_order(const Program& program);

}  // namespace stp
