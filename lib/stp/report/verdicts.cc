#include "stp/report/verdicts.h"

#include <algorithm>
#include <cmath>

namespace stp {

std::string to_string(Verdict verdict) {
  switch (verdict) {
    case Verdict::same:
      return "same";
    case Verdict::faster:
      return "faster";
    case Verdict::slower:
      return "slower";
    case Verdict::too_few:
      return "too few";
  }
  return "";
}

namespace {

// Of the medians, relative. Where a sample is noisy the run was disturbed, and the next would be disturbed
// otherwise: what its own interval leaves open does not count as a difference either.
double least_difference(const SamplePair& pair, const VerdictRule& rule) {
  double least = rule.least_difference;
  for (const auto* values : {&pair.first, &pair.second}) {
    const SampleSummary summary = summarise_sample(*values, rule);
    if (summary.noisy) least += (summary.interval->high - summary.interval->low) / 2 / summary.median;
  }
  return least;
}

}  // namespace

SampleSummary summarise_sample(const std::vector<double>& values, const VerdictRule& rule) {
  SampleSummary summary{median(values), median_interval(values), false};
  if (summary.interval)
    summary.noisy =
        (summary.interval->high - summary.interval->low) / 2 > rule.noisy_above * std::abs(summary.median);
  return summary;
}

std::vector<SampleComparison> compare_samples(const std::vector<SamplePair>& family,
                                              const VerdictRule& rule) {
  std::vector<SampleComparison> comparisons;
  std::vector<double> p;
  for (const SamplePair& pair : family) {
    const double before = median(pair.first), after = median(pair.second);
    SampleComparison comparison{{}, mann_whitney(pair.first, pair.second), 1, Verdict::same};
    if (before != 0) comparison.difference = after / before - 1;
    p.push_back(comparison.test.p);
    comparisons.push_back(comparison);
  }
  const std::vector<double> adjusted = holm(p);
  const auto rejected = static_cast<double>(
      std::count_if(adjusted.begin(), adjusted.end(), [&](double each) { return each <= rule.error_rate; }));
  const double left = static_cast<double>(family.size()) - rejected;  // what the next p is multiplied with
  for (size_t i = 0; i < family.size(); ++i) {
    SampleComparison& comparison = comparisons[i];
    const SamplePair& pair = family[i];
    comparison.adjusted_p = adjusted[i];
    const double before = median(pair.first), after = median(pair.second);
    if (adjusted[i] > rule.error_rate) {
      const bool could =
          left * least_mann_whitney_p(pair.first.size(), pair.second.size()) <= rule.error_rate;
      comparison.verdict = could ? Verdict::same : Verdict::too_few;
    } else if (std::abs(after - before) >= least_difference(pair, rule) * before && after != before) {
      comparison.verdict = after > before ? Verdict::slower : Verdict::faster;
    }
  }
  return comparisons;
}

nlohmann::json to_json(const VerdictRule& rule, size_t comparisons) {
  return {{"error_rate", rule.error_rate},
          {"least_difference", rule.least_difference},
          {"noisy_above", rule.noisy_above},
          {"comparisons", comparisons},
          {"repetitions_needed", repetitions_needed(comparisons, rule)}};
}

int repetitions_needed(size_t comparisons, const VerdictRule& rule) {
  size_t repetitions = 2;
  while (static_cast<double>(comparisons) * least_mann_whitney_p(repetitions, repetitions) > rule.error_rate)
    ++repetitions;
  return static_cast<int>(repetitions);
}

}  // namespace stp
