// The communication order: one global sequence of all communication ops, and the proof that issuing them in
// it cannot hang (docs/architecture.md, section 7).
#pragma once

#include <vector>

#include "stp/program/program.h"

namespace stp {

/// All all-reduces, transfers and gradient reductions of all ranks, in their topological_order: a rank that
/// issues its share in this order, receives as their senders send, agrees with all others. Throws
/// std::runtime_error that names an op if the Program has a circle.
std::vector<OpId> communication_order(const Program& program);

/// How many receives a rank must post ahead per link at the least: the smallest k ≥ 1 for which no wait can
/// close a circle when the n-th transfer of a link may start only once the tensor of its (n − k)-th was taken
/// up by the op that waited for it. Receives are posted in the sender's order, so the n-th send always meets
/// the n-th receive.
int receives_ahead(const Program& program);

}  // namespace stp
