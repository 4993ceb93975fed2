// Statistics of repeated measurements that assume no distribution: median, its interval, a rank test, and the
// correction for testing many at once.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

namespace stp {

/// The middle value, or the mean of the two middle ones. `values` must hold one at least.
double median(std::vector<double> values);

struct MedianInterval {
  double low, high;
  double coverage;  // exact, at least the confidence asked for
};
/// The interval between the k-th smallest and the k-th largest value that covers the median of the
/// distribution with at least `confidence`: the number of values below that median is binomial (n, 1/2),
/// whatever the distribution. None where even the extremes cover less: below six values at 95 %.
std::optional<MedianInterval> median_interval(std::vector<double> values, double confidence = 0.95);

struct MannWhitney {
  double u;    // pairs in which the value of the first sample is the larger; ties count a half
  double p;    // two-sided
  bool exact;  // whether from the exact distribution of U
};
/// The Mann-Whitney U test of two samples, none of them empty. Exact where there are no ties and both hold
/// fewer than 50 values: twice the smaller tail. Else the normal approximation, corrected for ties and for
/// continuity.
MannWhitney mann_whitney(const std::vector<double>& first, const std::vector<double>& second);

/// The smallest two-sided p that samples of these sizes can have: of every value of one above every value of
/// the other.
double least_mann_whitney_p(size_t first, size_t second);

/// Holm's step-down correction: adjusted p in the order of `p`. To reject what is adjusted to α or less keeps
/// the chance of any false rejection among all at α, whatever depends on what.
std::vector<double> holm(const std::vector<double>& p);

}  // namespace stp
