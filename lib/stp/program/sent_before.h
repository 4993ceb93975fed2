// What of a rank's transfers is done before its ops, because the Program says so.
#pragma once

#include <map>
#include <span>
#include <vector>

#include "stp/program/program.h"

namespace stp {

using TransfersByOp = std::map<OpId, std::vector<OpId>>;

/// By compute op: the transfers from its rank that end before it starts, by way of other ranks, and before
/// none of the rank's earlier compute ops. `order`: all ops, each behind what it waits for, as issue_order()
/// gives. Run time and memory: O(ops · links).
TransfersByOp sent_before(const Program& program, std::span<const OpId> order);

}  // namespace stp
