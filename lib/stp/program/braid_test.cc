// The orders in which two chains are braided, and schedules of halved microbatches.
#include "stp/program/braid.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "stp/base/error.h"
#include "stp/schedule/validate.h"
#include "support/schedules.h"

namespace stp {
namespace {

std::string evenly(int na, int nb) {
  std::string text;
  for (const BraidStep& step : static_braid(na, nb)) text += static_cast<char>('0' + step.chain);
  return text;
}

TEST(StaticBraid, OfSmallChainsIsWhatTheRuleGivesByHand) {
  EXPECT_EQ(evenly(0, 0), "");
  EXPECT_EQ(evenly(0, 2), "11");
  EXPECT_EQ(evenly(2, 0), "00");
  EXPECT_EQ(evenly(2, 2), "0101");
  EXPECT_EQ(evenly(3, 2), "01010");
  EXPECT_EQ(evenly(2, 3), "01101");
  EXPECT_EQ(evenly(3, 1), "0100");
  EXPECT_EQ(evenly(1, 3), "0111");
}

// All segments of chains of na and nb.
void expect_in_step(int64_t na, int64_t nb) {
  const std::string order = evenly(static_cast<int>(na), static_cast<int>(nb));
  ASSERT_EQ(std::count(order.begin(), order.end(), '0'), na);
  ASSERT_EQ(std::count(order.begin(), order.end(), '1'), nb);
  EXPECT_EQ(order.front(), '0');
  if (na == nb) {
    EXPECT_EQ(order.back(), '1');
  }
  int64_t i = 0, j = 0;
  for (const char which : order) {
    ++(which == '0' ? i : j);
    // i/na may lead j/nb by less than one of a's segments and a bit, and trail it by less than one of b's.
    ASSERT_LE(i * nb - j * na, nb) << na << " " << nb;
    ASSERT_GT(i * nb - j * na, -na) << na << " " << nb;
  }
}

TEST(StaticBraid, TakesEverySegmentOnceStartsWithTheFirstAndKeepsInStep) {
  for (int na = 1; na <= 40; ++na)
    for (int nb = 1; nb <= 40; ++nb) expect_in_step(na, nb);
  expect_in_step(70000, 65536);  // without overflow
}

TEST(Braid, HalvesOfAValidScheduleAreValidAndLimited) {
  std::mt19937 random(7);
  for (int i = 0; i < 200; ++i) {
    const int p = 1 + static_cast<int>(random() % 4), m = 1 + static_cast<int>(random() % 6);
    const Schedule whole = random_schedule(random, Placement::v(p), m), halves = split_microbatches(whole);
    validate(halves);
    const std::vector<int> peaks = peak_activations(halves);
    for (int rank = 0; rank < p; ++rank) {
      EXPECT_EQ(peaks[rank] % 2, 0);
      EXPECT_LE(peaks[rank] / 2, peak_activations(whole)[rank]);
    }
  }
  Schedule large{"large", Placement::loop(1, 1), kMaxMicrobatches, {{}}};
  EXPECT_THROW(split_microbatches(large), InputError);
}

}  // namespace
}  // namespace stp
