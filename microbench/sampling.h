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

/// How a piece of work is sampled: so many calls at a time, after one that is not timed and brings its data
/// into the caches, unless the work is so long that this does not show.
struct Pace {
  int calls = 1;
  bool warm_up = true;
};
/// Finds the pace of work of which `sample(calls)` gives the seconds of one call. The first calls of a sample
/// are slower than the others, so two processes that took few and many of them would differ; and one
/// interruption must not make the calls few. So their number is settled on samples as long as those to come,
/// the shortest of several.
Pace settle_pace(const std::function<double(int calls)>& sample, int most = 1000);

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
