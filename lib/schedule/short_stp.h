// STP where the authors' steps do not reach: fewer than 3p − 1 microbatches.
#pragma once

#include <vector>

#include "stp/schedule/action.h"

namespace stp {

/// The blocks of each rank, on the V placement, for any p ≥ 1 and 1 ≤ m < 3p − 1. At most 4p − 1 activations
/// are alive on a rank, as in the authors' order for m ≥ 3p − 1.
std::vector<std::vector<Block>> short_stp(int p, int m);

}  // namespace stp
