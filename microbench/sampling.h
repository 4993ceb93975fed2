// How samples are taken: calls per sample, rejection of disturbed samples, and their spread.
#pragma once

#include <functional>
#include <vector>

namespace stp::microbench {

/// Minimum length of a sample: shorter ones have too large an error of the clock.
inline constexpr double kShortestSample = 200e-6;

/// Calls per sample if one call takes `once` seconds; at most `most`.
int calls_per_sample(double once, int most = 1000);

/// Calls per sample; and whether an untimed call before each sample brings the data into the caches, which
/// long work does not need.
struct SampleSize {
  int calls = 1;
  bool warm_up = true;
};
/// Chooses the sample size; `sample(calls)` returns the seconds of one call. The first calls of a sample are
/// slower, so the number of calls must not differ between processes, and one interruption must not reduce it:
/// it is chosen by the shortest of several samples of the final length.
SampleSize settle_sample_size(const std::function<double(int calls)>& sample, int most = 1000);

/// Half the width of the 95 % interval of the median, as a share of it; infinite if there are too few values.
double half_width(const std::vector<double>& values);
/// Above it a row counts as noisy.
inline constexpr double kNoisy = 0.05;

/// Samples during which the machine ran at its usual speed. A probe (fixed work) is timed before and after
/// each; if it takes over `kThrottled` times as long as the fastest probe so far, the sample is taken again,
/// up to `kMostTries` times.
class SteadySampler {
 public:
  static constexpr double kThrottled = 1.25;

  explicit SteadySampler(std::function<double()> probe) : probe_(std::move(probe)) {}

  struct Taken {
    double seconds;
    int tries;        // including rejected ones
    double slowdown;  // of the slower of its two probes, relative to the fastest probe
  };
  Taken take(const std::function<double()>& sample);

 private:
  static constexpr int kMostTries = 4;

  // The probe's time relative to the fastest.
  double slowdown();

  std::function<double()> probe_;
  double fastest_ = 0;
};

}  // namespace stp::microbench
