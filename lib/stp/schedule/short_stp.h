// STP for fewer than 3p − 1 microbatches, which the authors' steps do not cover.
#pragma once

#include <vector>

#include "stp/schedule/action.h"

namespace stp {

/// The blocks of each rank, on the V placement, for any p ≥ 1 and 1 ≤ m < 3p − 1, with at most `capacity`
/// activations alive on a rank: 4p − 1 as in the authors' order for m ≥ 3p − 1, or fewer, but more than m.
std::vector<std::vector<Block>> short_stp(int p, int m, int capacity);

}  // namespace stp
