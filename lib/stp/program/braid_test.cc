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

TEST(StaticBraid, TakesEverySegmentOnceStartsWithTheFirstAndKeepsInStep) {
  for (int na = 1; na <= 40; ++na) {
    for (int nb = 1; nb <= 40; ++nb) {
      const std::string order = evenly(na, nb);
      ASSERT_EQ(std::count(order.begin(), order.end(), '0'), na);
      ASSERT_EQ(std::count(order.begin(), order.end(), '1'), nb);
      EXPECT_EQ(order.front(), '0');
      if (na == nb) {
        EXPECT_EQ(order.back(), '1');
      }
      int i = 0, j = 0;
      for (const char which : order) {
        ++(which == '0' ? i : j);
        // i/na may lead j/nb by less than one of a's segments and a bit, and trail it by less than one of
        // b's.
        EXPECT_LE(i * nb - j * na, nb) << na << " " << nb;
        EXPECT_GT(i * nb - j * na, -na) << na << " " << nb;
      }
    }
  }
}

TEST(StaticBraid, OfLongChainsDoesNotOverflow) {
  const std::string order = evenly(70000, 65536);
  EXPECT_EQ(std::count(order.begin(), order.end(), '0'), 70000);
  int64_t i = 0, j = 0;
  for (const char which : order) {
    ++(which == '0' ? i : j);
    ASSERT_LE(i * 65536 - j * 70000, 65536);
    ASSERT_GT(i * 65536 - j * 70000, -70000);
  }
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
