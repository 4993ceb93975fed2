// What of a whole is due to which of its parts, where parts act on each other.
#pragma once

#include <vector>

namespace stp {

/// One part's share of the way from a value without any part to that with all.
struct Share {
  double alone;    // what it moves by itself: with this part alone, less with none
  double shapley;  // what it moves in the mean over all orders in which the parts can come: these add up
};

/// `values` holds 2ⁿ of them: values[s] with the parts whose bits are set in s.
std::vector<Share> shares_of(const std::vector<double>& values);

}  // namespace stp
