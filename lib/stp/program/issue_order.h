// The order in which one thread issues the ops of all ranks, and the proof that issuing them so cannot hang
// (docs/architecture.md, section 7).
#pragma once

#include <vector>

#include "stp/program/program.h"

namespace stp {

struct IssueOrder {
  /// Every op once. Each rank's ops stand in the order of its list, and every op behind all that it waits
  /// for; so processes that issue their ranks' share of it make the calls of a group in one order. Ops that
  /// could go at the same time stand by rank.
  std::vector<OpId> ops;
  /// How many transfers of a link the receiver must be ready for at once: the smallest k ≥ 1 for which
  /// nothing waits in a circle when the n-th transfer of a link starts only once the tensor of its (n − k)-th
  /// was taken up by the op that waited for it. `ops` keeps to that too.
  int receives_ahead = 1;
};

/// Throws std::runtime_error that names an op if the Program waits in a circle.
IssueOrder issue_order(const Program& program);

}  // namespace stp
