#include "sampling.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace stp::microbench {
namespace {

TEST(CallsPerSample, FillTheShortestSample) {
  EXPECT_EQ(calls_per_sample(1), 1);
  EXPECT_EQ(calls_per_sample(kShortestSample), 1);
  EXPECT_EQ(calls_per_sample(kShortestSample / 7.5), 8);
  EXPECT_EQ(calls_per_sample(0, 50), 50);  // a clock too coarse to see it
}

// Work whose first call in a sample takes 8 µs more, as data comes into the caches, and of which some samples
// are interrupted for a millisecond.
struct ColdStart {
  double once;
  std::vector<int> interrupted;
  int samples = 0;
  double operator()(int calls) {
    const bool now = std::count(interrupted.begin(), interrupted.end(), samples++) > 0;
    return once + (8e-6 + (now ? 1e-3 : 0)) / calls;
  }
};

TEST(SettleSampleSize, FillsTheShortestSampleHoweverColdTheFirstCallsAre) {
  for (const std::vector<int>& interrupted : {std::vector<int>{}, {0, 1}, {1, 2}, {0, 2, 4}, {4, 5}}) {
    const SampleSize size = settle_sample_size(ColdStart{2.2e-6, interrupted});
    EXPECT_NEAR(size.calls, kShortestSample / 2.2e-6, 0.11 * kShortestSample / 2.2e-6);
    EXPECT_TRUE(size.warm_up);
  }
}

TEST(SettleSampleSize, EndsWhereAClockSeesNothingOrTheWorkIsLong) {
  EXPECT_EQ(settle_sample_size([](int) { return 0.0; }, 50).calls, 50);
  EXPECT_EQ(settle_sample_size(ColdStart{1.1 * kShortestSample, {}}).calls, 1);
  const SampleSize size = settle_sample_size([](int) { return 1.0; });
  EXPECT_EQ(size.calls, 1);
  EXPECT_FALSE(size.warm_up);
}

TEST(SettleSampleSize, EndsWhereTimesNeverSettle) {
  int samples = 0;
  EXPECT_EQ(settle_sample_size([&](int) { return 1e-4 / ++samples; }, 50).calls, 50);
}

TEST(HalfWidth, IsThatOfTheMediansInterval) {
  // Of ten values the interval of 95 % goes from the second smallest to the second largest.
  EXPECT_DOUBLE_EQ(half_width({1, 2, 3, 4, 5, 6, 7, 8, 9, 10}), (9.0 - 2) / 2 / 5.5);
  EXPECT_EQ(half_width(std::vector<double>(12, 3.0)), 0);
  EXPECT_TRUE(std::isinf(half_width({1, 1, 1, 1, 1})));
}

TEST(SpreadWord, IsNotNoisyWhereNothingIsKnownOfTheSpread) {
  for (const bool noisy : {false, true}) {
    EXPECT_EQ(spread_word(1, noisy), "too few");
    EXPECT_EQ(spread_word(5, noisy), "too few");  // all on one side of the median: 2 / 2^5 > 5 %
    EXPECT_EQ(spread_word(6, noisy), noisy ? "noisy" : "");
  }
}

// A machine whose probe takes times from a list.
struct Scripted {
  std::vector<double> probes;
  size_t next = 0;
  int samples = 0;
  SteadySampler sampler{[this] { return probes[std::min(next++, probes.size() - 1)]; }};
  SteadySampler::Taken take() {
    return sampler.take([this] { return static_cast<double>(++samples); });
  }
};

TEST(SteadySampler, KeepsWhatRanAtTheUsualSpeed) {
  Scripted machine{{1, 1.1}};
  const auto taken = machine.take();
  EXPECT_EQ(taken.seconds, 1);
  EXPECT_EQ(taken.tries, 1);
  EXPECT_DOUBLE_EQ(taken.slowdown, 1.1);
}

TEST(SteadySampler, TakesASampleAgainWhereTheMachineSlowedDownBesideIt) {
  Scripted machine{{1, 2, 1, 1}};  // before the first, behind it, behind the second, behind the third
  const auto taken = machine.take();
  EXPECT_EQ(taken.seconds, 3);  // the second began slow
  EXPECT_EQ(taken.tries, 3);
  EXPECT_EQ(taken.slowdown, 1);
}

TEST(SteadySampler, SaysSoWhereTheMachineStaysSlow) {
  Scripted machine{{1, 2}};
  const auto taken = machine.take();
  EXPECT_EQ(taken.slowdown, 2);
  EXPECT_EQ(taken.seconds, taken.tries);  // the last one
}

}  // namespace
}  // namespace stp::microbench
