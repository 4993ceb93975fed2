// The order in which one thread issues the ops of all ranks, and the proof that issuing them so cannot hang
// (docs/architecture.md, section 7).
#pragma once

#include <vector>

#include "stp/program/program.h"

namespace stp {

struct IssueOrder {
  /// Every op once. Each rank's ops are in the order of its list, and every op follows its dependencies; so
  /// processes that issue only their ranks' ops make the calls of a group in one order. Independent ops are
  /// ordered by rank.
  std::vector<OpId> ops;
  /// How many receives of a link must be posted at once: the smallest k ≥ 1 without deadlock if the n-th
  /// transfer of a link starts only once the tensor of the (n − k)-th was consumed by the op that waited for
  /// it. `ops` respects this too.
  int receives_ahead = 1;
};

/// Throws std::runtime_error that names an op if the Program would deadlock.
IssueOrder issue_order(const Program& program);

}  // namespace stp
