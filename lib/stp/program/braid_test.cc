// The orders in which two chains are braided.
#include "stp/program/braid.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>
#include <string>
#include <vector>

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

using Chain = std::vector<SegmentSeconds>;

// Of some kind: with gathers or without, with weight gradients or without, some of no time.
Chain random_chain(std::mt19937& random, int segments, bool gathers, bool weights) {
  std::uniform_real_distribution<double> seconds(0, 4);
  Chain chain;
  for (int i = 0; i < segments; ++i)
    chain.push_back({.gather = gathers ? seconds(random) : 0,
                     .compute = seconds(random),
                     .reduce = random() % 4 == 0 ? 0 : seconds(random),
                     .behind = weights ? seconds(random) : 0});
  return chain;
}

// Calls work(order) with every order of two chains.
template <typename Work>
void for_every_order(size_t na, size_t nb, Work work) {
  std::vector<uint8_t> chains(na, 0);
  chains.resize(na + nb, 1);
  do {
    std::vector<BraidStep> order;
    for (const uint8_t chain : chains) order.push_back({chain});
    work(order);
  } while (std::ranges::next_permutation(chains).found);
}

TEST(TimedBraid, EndsComputeAsEarlyAsTheBestOrder) {
  std::mt19937 random(1);
  for (int i = 0; i < 400; ++i) {
    const Chain a = random_chain(random, static_cast<int>(random() % 6), random() % 2 == 0, false),
                b = random_chain(random, static_cast<int>(random() % 6), random() % 2 == 0,
                                 random() % 2 == 0);
    double best = std::numeric_limits<double>::infinity();
    for_every_order(a.size(), b.size(), [&](const std::vector<BraidStep>& order) {
      best = std::min(best, end_of(a, b, order).compute);
    });
    EXPECT_NEAR(end_of(a, b, timed_braid(a, b)).compute, best, 1e-12) << "case " << i;
  }
}

TEST(TimedBraid, OfLongChainsIsNeverLaterThanTheStaticOne) {
  std::mt19937 random(2);
  for (int i = 0; i < 20; ++i) {
    const Chain a = random_chain(random, 60, i % 2 == 0, false),
                b = random_chain(random, 90, i % 2 == 0, true);
    const auto evenly = static_braid(60, 90);
    EXPECT_LE(end_of(a, b, timed_braid(a, b)).compute, end_of(a, b, evenly).compute);
  }
}

// Forwards of a second and a half, a collective of one: the other chain's next forward hides it all.
TEST(TimedBraid, HidesCollectivesBehindTheOtherChain) {
  const Chain chain(3, {.compute = 1.5, .reduce = 1});
  EXPECT_DOUBLE_EQ(end_of(chain, chain, timed_braid(chain, chain)).compute, 9);
  EXPECT_DOUBLE_EQ(end_of(chain, chain, timed_braid(chain, chain)).collectives, 10);
}

// All pairings, tried one by one: what is left of both chains begins when all before has ended.
double best_pairing(const Chain& a, const Chain& b, size_t i = 0, size_t j = 0) {
  if (i == a.size() && j == b.size()) return 0;
  double best = std::numeric_limits<double>::infinity();
  const auto end = [](Chain x, Chain y, std::vector<BraidStep> order) {
    return end_of(x, y, order).collectives;
  };
  if (i < a.size()) best = std::min(best, end({a[i]}, {}, {{0}}) + best_pairing(a, b, i + 1, j));
  if (j < b.size()) best = std::min(best, end({}, {b[j]}, {{1}}) + best_pairing(a, b, i, j + 1));
  if (i < a.size() && j < b.size())
    best = std::min(best, std::min(end({a[i]}, {b[j]}, {{0}, {1}}), end({b[j]}, {a[i]}, {{0}, {1}})) +
                              best_pairing(a, b, i + 1, j + 1));
  return best;
}

TEST(PairedBraid, HasTheSmallestSumOfPairsAndABarrierBetweenThem) {
  std::mt19937 random(3);
  for (int i = 0; i < 200; ++i) {
    // Gathers belong to the segment behind: alone they would begin before the barrier.
    const Chain a = random_chain(random, static_cast<int>(random() % 6), false, false),
                b = random_chain(random, static_cast<int>(random() % 6), false, random() % 2 == 0);
    const std::vector<BraidStep> order = paired_braid(a, b);
    ASSERT_EQ(order.size(), a.size() + b.size());
    EXPECT_NEAR(end_of(a, b, order).collectives, best_pairing(a, b), 1e-9) << "case " << i;
    for (size_t step = 1; step + 1 < order.size(); ++step)
      EXPECT_TRUE(order[step].barrier || order[step + 1].barrier) << "three together";
  }
}

}  // namespace
}  // namespace stp
