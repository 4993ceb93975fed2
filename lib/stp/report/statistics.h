// The median of repeated measurements and its distribution-free interval. plots/stp_plots/judge/statistics.py
// compares measurements.
#pragma once

#include <optional>
#include <vector>

namespace stp {

/// The middle value, or the mean of the two middle ones. `values` must hold one at least.
double median(std::vector<double> values);

struct MedianInterval {
  double low, high;
  double coverage;  // exact, at least the confidence asked for
};
/// The interval between the k-th smallest and the k-th largest value that covers the distribution's median
/// with at least `confidence`. The number of values below the median is binomial (n, 1/2) for every
/// distribution. None if even the extremes cover less: below six values at 95 %.
std::optional<MedianInterval> median_interval(std::vector<double> values, double confidence = 0.95);

}  // namespace stp
