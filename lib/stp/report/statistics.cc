#include "stp/report/statistics.h"

#include <algorithm>
#include <cmath>

namespace stp {

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return (values[(n - 1) / 2] + values[n / 2]) / 2;
}

std::optional<MedianInterval> median_interval(std::vector<double> values, double confidence) {
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  // The interval misses the median if fewer than k values are below it or above it: the largest k with enough
  // coverage.
  double log_probability = -static_cast<double>(n) * std::log(2.0), tail = 0;
  std::optional<MedianInterval> interval;
  for (size_t k = 1; 2 * k <= n; ++k) {
    tail += std::exp(log_probability);
    if (1 - 2 * tail < confidence) break;
    interval = {values[k - 1], values[n - k], 1 - 2 * tail};
    log_probability += std::log(static_cast<double>(n - k + 1) / static_cast<double>(k));
  }
  return interval;
}

}  // namespace stp
