// STP for fewer than 3p − 1 microbatches, which the authors' steps do not cover.
#pragma once

#include <vector>

#include "stp/schedule/action.h"

namespace stp {

/// Returns each rank's blocks on the V placement, for p ≥ 1 and 1 ≤ m < 3p − 1. At most `capacity`
/// activations are alive on a rank: 4p − 1 as in the authors' order, or fewer, but more than m.
std::vector<std::vector<Block>> short_stp(int p, int m, int capacity);

}  // namespace stp
