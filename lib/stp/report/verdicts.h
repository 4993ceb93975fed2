// Times of many things, taken twice: which of them differ.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "stp/report/statistics.h"

namespace stp {

/// `too_few`: not found to differ, but so few repetitions among so many comparisons could not have shown it.
enum class Verdict { same, faster, slower, too_few };
std::string to_string(Verdict verdict);

/// What differs. Two runs of one machine differ by a few per cent that repetitions inside a run do not show
/// (of placement in memory, of clocks), so that significance alone says too much.
struct VerdictRule {
  double error_rate = 0.05;        // the chance that anything at all is found where nothing differs
  double least_difference = 0.05;  // of the medians, relative: what is less is the same; more where noisy
  double noisy_above = 0.05;       // half the interval of a median, relative
};

/// Seconds, each of the same thing; neither is empty.
struct SamplePair {
  std::vector<double> first, second;
};

struct SampleSummary {
  double median;
  std::optional<MedianInterval> interval;  // 95 %
  bool noisy;                              // its interval is wider than the rule allows
};
SampleSummary summarise_sample(const std::vector<double>& values, const VerdictRule& rule = {});

struct SampleComparison {
  std::optional<double> difference;  // second / first − 1, of the medians; none if the first is zero
  MannWhitney test;
  double adjusted_p;  // Holm's, over the whole family
  Verdict verdict;    // of the second: slower if it takes longer
};
/// Judges all of `family` together, so that the rule's error rate holds over all of it.
std::vector<SampleComparison> compare_samples(const std::vector<SamplePair>& family,
                                              const VerdictRule& rule = {});

/// The rule that so many comparisons were judged by.
nlohmann::json to_json(const VerdictRule& rule, size_t comparisons);

/// The fewest repetitions a side with which one of so many comparisons can be told from chance.
int repetitions_needed(size_t comparisons, const VerdictRule& rule = {});

}  // namespace stp
