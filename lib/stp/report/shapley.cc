#include "stp/report/shapley.h"

#include <bit>
#include <cstddef>

namespace stp {

std::vector<Share> shares_of(const std::vector<double>& values) {
  const auto parts = static_cast<size_t>(std::countr_zero(values.size()));
  // Orders in which exactly the parts of a set of that size come before a given part, of all orders.
  std::vector<double> weight(parts);
  for (size_t size = 0; size < parts; ++size) {
    weight[size] = 1 / static_cast<double>(parts);
    for (size_t i = 1; i <= size; ++i)
      weight[size] *= static_cast<double>(i) / static_cast<double>(parts - i);
  }
  std::vector<Share> shares(parts);
  for (size_t part = 0; part < parts; ++part) {
    const size_t bit = size_t{1} << part;
    shares[part] = {values[bit] - values[0], 0};
    for (size_t set = 0; set < values.size(); ++set)
      if ((set & bit) == 0)
        shares[part].shapley +=
            weight[static_cast<size_t>(std::popcount(set))] * (values[set | bit] - values[set]);
  }
  return shares;
}

}  // namespace stp
