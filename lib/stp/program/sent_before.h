// Finds the transfers of a rank that the Program guarantees to be done before each of its ops.
#pragma once

#include <map>
#include <span>
#include <vector>

#include "stp/program/program.h"

namespace stp {

using TransfersByOp = std::map<OpId, std::vector<OpId>>;

/// Returns for each compute op the transfers of its rank that its dependencies, also through other ranks,
/// guarantee to be done before it starts. Each transfer is listed once, at the earliest such op. `order`: all
/// ops in an order such as issue_order()'s. Run time and memory: O(ops · links).
TransfersByOp sent_before(const Program& program, std::span<const OpId> order);

}  // namespace stp
