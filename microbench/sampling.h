// How samples are taken: how often the work is repeated in one, when one is thrown away, and what their
// spread says.
#pragma once

#include <functional>
#include <vector>

namespace stp::microbench {

/// A sample lasts so long at the least: shorter ones are mostly the clock's.
inline constexpr double kShortestSample = 200e-6;

/// Calls to put into one sample where one takes `once` seconds; `most` of them.
int calls_per_sample(double once, int most = 1000);

/// Half the width of the 95 % interval of the median, as a share of it; infinite where there are too few
/// values to tell.
double half_width(const std::vector<double>& values);
/// Above it a row is marked as noisy.
inline constexpr double kNoisy = 0.05;

/// Samples during which the machine ran at its usual speed. A probe, a piece of work that never changes, is
/// timed before and after each; where one takes over `kThrottled` times as long as the fastest ever, the
/// sample is taken again, up to `kMostTries` times.
class SteadySampler {
 public:
  static constexpr double kThrottled = 1.25;

  explicit SteadySampler(std::function<double()> probe) : probe_(std::move(probe)) {}

  struct Taken {
    double seconds;
    int tries;        // with those thrown away
    double slowdown;  // of the slower of the probes beside it, over the fastest ever
  };
  Taken take(const std::function<double()>& sample);

 private:
  static constexpr int kMostTries = 4;

  // The probe's time over the fastest.
  double slowdown();

  std::function<double()> probe_;
  double fastest_ = 0;
};

}  // namespace stp::microbench
