#include "stp/reference/gradient_error.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace stp::reference {
namespace {

double norm(const std::vector<double>& values) {
  return std::sqrt(std::inner_product(values.begin(), values.end(), values.begin(), 0.0));
}

}  // namespace

double gradient_error(const Parameters& ours, const Parameters& exact) {
  double largest = 0, worst = 0;
  for (const auto& [name, values] : exact) largest = std::max(largest, norm(values));
  for (const auto& [name, values] : exact) {
    const auto found = ours.find(name);
    if (found == ours.end() || found->second.size() != values.size()) return INFINITY;
    std::vector<double> difference = found->second;
    for (size_t i = 0; i < values.size(); ++i) difference[i] -= values[i];
    const double error = norm(difference) / std::max(norm(values), 1e-3 * largest);
    worst = std::isnan(error) ? INFINITY : std::max(worst, error);
  }
  return worst;
}

}  // namespace stp::reference
