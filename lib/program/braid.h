// Pass 2, braiding: the order in which the segments of a block's two chains are issued.
#pragma once

#include <cstdint>
#include <vector>

namespace stp {

/// The paper's static braid of chains of `na` and `nb` segments: take from the first while it is not used up
/// and (i·nb ≤ j·na or the second is used up), else from the second, where i and j count what was taken.
/// Returns 0 or 1 per segment issued. Further policies stand beside this one, chosen by name.
std::vector<uint8_t> static_braid(int na, int nb);

}  // namespace stp
