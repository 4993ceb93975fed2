#include "sampling.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "stp/report/statistics.h"

namespace stp::microbench {

int calls_per_sample(double once, int most) {
  if (once >= kShortestSample) return 1;
  return std::clamp(static_cast<int>(std::ceil(kShortestSample / std::max(once, 1e-9))), 1, most);
}

double half_width(const std::vector<double>& values) {
  const auto interval = median_interval(values);
  if (!interval) return std::numeric_limits<double>::infinity();
  return (interval->high - interval->low) / 2 / median(values);
}

SteadySampler::Taken SteadySampler::take(const std::function<double()>& sample) {
  bool before = is_steady();
  for (int dropped = 0;; ++dropped) {
    const double seconds = sample();
    const bool after = is_steady();
    const bool steady = before && after;
    if (steady || dropped + 1 == kMostTries) return {seconds, dropped, !steady};
    before = after;
  }
}

bool SteadySampler::is_steady() {
  const double now = probe_();
  if (fastest_ == 0 || now < fastest_) fastest_ = now;
  return now <= kThrottled * fastest_;
}

}  // namespace stp::microbench
