// The clock, on marks whose times are known and which measure as CUDA's events do: in float milliseconds.
#include "stp/cuda/epoch_clock.h"

#include <gtest/gtest.h>

#include <cmath>

namespace stp::cuda {
namespace {

double elapsed(double from, double to) {
  EXPECT_LE(from, to) << "CUDA refuses a negative time";
  return static_cast<double>(static_cast<float>((to - from) * 1e3)) / 1e3;
}

constexpr double kFirst = 17.25;  // of the marks' own clock

// Epochs about four seconds apart, never at round times.
EpochClock<double> clock_of(int epochs) {
  EpochClock<double> clock;
  for (int i = 0; i < epochs; ++i) clock.add(kFirst + i * 4.0000317, elapsed);
  return clock;
}

TEST(EpochClock, BeginsWithItsFirstEpoch) {
  const auto clock = clock_of(1);
  EXPECT_EQ(clock.latest(), 0U);
  EXPECT_EQ(clock.seconds(kFirst, 0, elapsed), 0);
  EXPECT_NEAR(clock.seconds(kFirst + 0.5, 0, elapsed), 0.5, 1e-7);
}

TEST(EpochClock, ShortTimesAreExactLateInALongRun) {
  const auto clock = clock_of(900);  // an hour
  const size_t last = clock.latest();
  EXPECT_EQ(last, 899U);
  const double late = kFirst + 899 * 4.0000317 + 1.25;
  const double step = clock.seconds(late + 20e-6, last, elapsed) - clock.seconds(late, last, elapsed);
  EXPECT_NEAR(step, 20e-6, 0.5e-6);
  EXPECT_GT(std::abs(elapsed(kFirst, late + 20e-6) - elapsed(kFirst, late) - 20e-6), 10e-6)
      << "a plain clock would do: this test proves nothing";
}

// A record that is passed long after it was issued lies in an old epoch by its number.
TEST(EpochClock, AMarkPassedLateIsMeasuredFromTheEpochBeforeIt) {
  const auto clock = clock_of(900);
  const double late = kFirst + 3000.123456;
  EXPECT_NEAR(clock.seconds(late, 2, elapsed), clock.seconds(late, 749, elapsed), 1e-12);
}

// Two marks keep their order, whichever epochs they were recorded in.
TEST(EpochClock, DoesNotStepBackBetweenEpochs) {
  const auto clock = clock_of(20);
  double before = -1;
  for (int i = 0; i < 20000; ++i) {
    const double time = i * 3.9e-3;
    const auto epoch = static_cast<size_t>(time / 4.0000317);
    const double seconds = clock.seconds(kFirst + time, epoch - (epoch > 0 ? i % 2 : 0), elapsed);
    EXPECT_GT(seconds, before);
    EXPECT_NEAR(seconds, time, 5e-6);
    before = seconds;
  }
}

}  // namespace
}  // namespace stp::cuda
