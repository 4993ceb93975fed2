// How much a schedule may offload at no cost (section 4.4 of the paper).
#pragma once

#include <optional>

#include "stp/cost/cost_table.h"

namespace stp {

/// The largest ratio, at most 1, with which a copy to the host takes no longer than the forward in front of
/// it, where that is a block alone, as in the warm-up, and nothing delays it; the least over all such copies.
/// The Program's own ratio is within it if its copies are. None where there is no such copy.
std::optional<double> offload_ratio_bound(const Program& program, const CostTable& table);

}  // namespace stp
