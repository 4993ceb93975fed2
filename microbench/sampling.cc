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

SampleSize settle_sample_size(const std::function<double(int calls)>& sample, int most) {
  constexpr int kSamples = 3;
  constexpr double kLong = 10 * kShortestSample;
  for (int calls = 1;;) {
    double once = std::numeric_limits<double>::infinity();
    for (int i = 0; i < kSamples; ++i) once = std::min(once, sample(calls));
    if (once >= kLong) return {1, false};
    const int enough = calls_per_sample(once, most);
    if (enough <= calls + calls / 10) return {std::max(calls, enough), true};
    calls = enough;
  }
}

double half_width(const std::vector<double>& values) {
  const auto interval = median_interval(values);
  if (!interval) return std::numeric_limits<double>::infinity();
  return (interval->high - interval->low) / 2 / median(values);
}

std::string spread_word(int64_t repetitions, bool noisy) {
  if (!median_interval(std::vector<double>(repetitions))) return kTooFew;
  return noisy ? "noisy" : "";
}

SteadySampler::Taken SteadySampler::take(const std::function<double()>& sample) {
  double before = slowdown();
  for (int tries = 1;; ++tries) {
    const double seconds = sample();
    const double after = slowdown(), slower = std::max(before, after);
    if (slower <= kThrottled || tries == kMostTries) return {seconds, tries, slower};
    before = after;
  }
}

double SteadySampler::slowdown() {
  const double now = probe_();
  if (fastest_ == 0 || now < fastest_) fastest_ = now;
  return now / fastest_;
}

}  // namespace stp::microbench
