// The order in which one thread issues the ops of all ranks, and the proof that issuing them so cannot hang
// (docs/architecture.md, section 7).
#pragma once

#include <map>
#include <span>
#include <vector>

#include "stp/program/program.h"

namespace stp {

struct IssueOrder {
  /// Every op once. Each rank's ops are in the order of its list, and every op follows its dependencies.
  /// Processes that issue only their own ranks' ops therefore make the calls of a group in one order.
  /// Independent ops are ordered by rank.
  std::vector<OpId> ops;
  /// The number of receives of a link that must be posted at once: the smallest k ≥ 1 without deadlock if
  /// transfer n of a link starts only after the tensor of transfer n − k was consumed. `ops` respects this
  /// too.
  int receives_ahead = 1;
};

/// Throws std::runtime_error that names an op if the Program would deadlock.
IssueOrder issue_order(const Program& program);

using TransfersByOp = std::map<OpId, std::vector<OpId>>;

/// Returns for each compute op the transfers of its rank that its dependencies, also through other ranks,
/// guarantee to be done before it starts. Each transfer is listed once, at the earliest such op. `order`: all
/// ops in an order such as issue_order()'s. Run time and memory: O(ops · links).
TransfersByOp sent_before(const Program& program, std::span<const OpId> order);

}  // namespace stp
