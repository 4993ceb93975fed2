// The method of sampling: calls per sample, rejection of disturbed samples, and their spread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace stp::microbench {

/// Minimum length of a sample. The clock's error is too large for shorter samples.
inline constexpr double kShortestSample = 200e-6;

/// Calls per sample if one call takes `once` seconds; at most `most`.
int calls_per_sample(double once, int most = 1000);

/// Calls per sample. `warm_up`: an untimed call before each sample brings the data into the caches; long work
/// does not need it.
struct SampleSize {
  int calls = 1;
  bool warm_up = true;
};
/// Chooses the sample size; `sample(calls)` returns the seconds of one call. A sample's first calls are
/// slower, so processes must agree on the number of calls, and one interruption must not reduce it: the
/// shortest of several samples of the final length decides.
SampleSize settle_sample_size(const std::function<double(int calls)>& sample, int most = 1000);

/// Half the width of the 95 % interval of the median, as a share of it; infinite if there are too few values.
double half_width(const std::vector<double>& values);
/// A row with a larger half width counts as noisy.
inline constexpr double kNoisy = 0.05;
inline constexpr const char* kTooFew = "too few";
/// The word for a row's spread: kTooFew repetitions for a 95 % interval, "noisy", or "".
std::string spread_word(int64_t repetitions, bool noisy);

/// Samples while the machine has its usual speed. A probe (fixed work) is timed before and after each sample.
/// If it takes more than `kThrottled` times as long as the fastest probe so far, the sample is repeated, up
/// to `kMostTries` times.
class SteadySampler {
 public:
  static constexpr double kThrottled = 1.25;

  explicit SteadySampler(std::function<double()> probe) : probe_(std::move(probe)) {}

  struct Taken {
    double seconds;
    int tries;        // including rejected ones
    double slowdown;  // of the slower of the sample's two probes, relative to the fastest probe
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
