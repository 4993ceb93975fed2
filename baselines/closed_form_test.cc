// Bubbles and memory that papers give in closed form.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "baselines/registry.h"
#include "support/effort.h"
#include "support/order_times.h"

namespace stp {
namespace {

using testing::Each;
using testing::Le;

Schedule make(const std::string& name, int pp, int microbatches, int chunks = 0) {
  return make_schedule(find_generator(name), {.pp = pp, .microbatches = microbatches, .chunks = chunks});
}

TEST(ClosedForm, PeaksAreThePublishedOnes) {
  for (int p = 2; p <= 16; ++p) {
    const auto peak = [&](const char* name, bool freed_at_I = false) {
      return std::ranges::max(peak_activations(make(name, p, 4 * p), freed_at_I));
    };
    EXPECT_EQ(peak("1f1b"), p);
    EXPECT_EQ(peak("1f1b-i"), 3 * p - 1);
    EXPECT_EQ(peak("1f1b-i-braided"), 3 * p);
    EXPECT_EQ(peak("zb-v"), 2 * p);
    EXPECT_EQ(peak("stp", true), 3 * p + 1);
    EXPECT_EQ(peak("stp"), 4 * p - 1);
  }
}

// Microbatches alive in vocabulary parallelism: the first rank holds p and one for each barrier.
TEST(ClosedForm, VocabularyHoldsOneMicrobatchMoreForEachBarrier) {
  for (int p = 1; p <= 16; ++p)
    for (const int m : {2 * p, 4 * p + 1, 40}) {
      const auto expect_peaks = [&](const char* name, int first) {
        const std::vector<int> peaks = peak_activations(make(name, p, m));
        for (int r = 0; r < p; ++r)
          EXPECT_EQ(peaks[r], std::min(first - r, m)) << name << " " << p << " " << m;
      };
      expect_peaks("vocab-2", p + 1);
      expect_peaks("vocab-1", p + 2);
      if (p > 1) expect_peaks("interlaced", 3 * p / 2);
    }
}

TEST(ClosedForm, BubblesAreThePublishedOnes) {
  for (int p = 2; p <= 16; ++p) {
    const int m = 4 * p;
    EXPECT_NEAR(bubble(make("1f1b", p, m), {2, 2, 2, 0}), (p - 1) * 6, kEpsilon);
    EXPECT_NEAR(bubble(make("1f1b-i", p, m), kEqual), (p - 1) * 3, kEpsilon);
    EXPECT_NEAR(bubble(make("stp", p, m), kEqual), p - 1, kEpsilon);
    EXPECT_NEAR(bubble(make("zb-v", p, m), kEqual), p - 1, kEpsilon);
  }
}

TEST(ClosedForm, GpipeHasTheBubbleOf1F1BAndHoldsEverything) {
  for (int p = 1; p <= 16; ++p) {
    for (int m = 1; m <= 20; m += 3) {
      const Schedule schedule = make("gpipe", p, m);
      EXPECT_NEAR(bubble(schedule, {1, 0.9, 0.7, 0}), (p - 1) * (1 + 0.9 + 0.7), kEpsilon);
      EXPECT_THAT(peak_activations(schedule), Each(m));
    }
  }
}

TEST(ClosedForm, ZbH1HasItsPublishedBubbleAndTheMemoryOf1F1B) {
  for (int p = 1; p <= 16; ++p) {
    for (int m = 2 * p - 1; m <= 2 * p + 14; ++m) {
      const Schedule schedule = make("zb-h1", p, m);
      EXPECT_NEAR(bubble(schedule, kEqual), (p - 1) * (1 + 1 - 1), kEpsilon) << title(schedule);
      EXPECT_THAT(peak_activations(schedule), Each(p)) << title(schedule);
    }
  }
}

TEST(ClosedForm, ZbH2HasItsPublishedBubbleInTheLongestSpanOfARank) {
  for (const PassCosts& costs :
       {kEqual, {1, 1, 0.7, 0}, {1, 1, 0.5, 0}, {1.2, 1, 0.8, 0}, {1, 1.2, 0.8, 0}}) {
    for (int p = 1; p <= 16; ++p) {
      for (int m = 2 * p - 1; m <= 2 * p + 14; ++m) {
        const Schedule schedule = make("zb-h2", p, m);
        const double work = m * (costs.F + costs.I + costs.W);
        const OrderTimes run = run_order(schedule, costs);
        EXPECT_NEAR(run.longest_span() - work, (p - 1) * (costs.F + costs.I - 2 * costs.W), kEpsilon)
            << title(schedule);
        // The last rank starts p − 1 forwards late and then never idles.
        EXPECT_NEAR(run.makespan() - work, (p - 1) * costs.F, kEpsilon) << title(schedule);
      }
    }
  }
}

TEST(ClosedForm, ZbH2HoldsTwicePLessOneUntilWOnEveryRank) {
  for (int p = 1; p <= 16; ++p) {
    for (int m = 1; m <= 2 * p + 14; ++m) {
      const Schedule schedule = make("zb-h2", p, m);
      EXPECT_THAT(peak_activations(schedule), Each(std::min(m, 2 * p - 1)));
      const auto until_I = peak_activations(schedule, true);
      for (int rank = 0; rank < p; ++rank)
        EXPECT_EQ(until_I[rank], std::min(m, 2 * (p - rank) - 1)) << title(schedule);
    }
  }
}

// With few microbatches, the path down and up and one W: the formula of m ≤ p. With more, the last rank's
// work.
TEST(ClosedForm, ZbH2TakesNoLongerThanAnyOrderMust) {
  for (int p = 1; p <= 16; ++p) {
    for (int m = 1; m <= 2 * p + 14; ++m) {
      const double way = (m + p - 1) * 2 + 1, last_rank = 3 * m + p - 1;
      EXPECT_NEAR(run_order(make("zb-h2", p, m), kEqual).makespan(), std::max(way, last_rank), kEpsilon)
          << p << " " << m;
    }
  }
}

TEST(ClosedForm, DualPipeVHasItsMeasuredBubblesAndPeak) {
  for (int p = 2; p <= 16; ++p) {
    for (int m = 2 * p; m <= 2 * p + 14; ++m) {
      const Schedule schedule = make("dualpipev", p, m);
      EXPECT_NEAR(bubble(schedule, kEqual), 2 * (p - 1), kEpsilon) << title(schedule);
      EXPECT_NEAR(bubble(schedule, kEqual, Braids::in_turn), p - 1, kEpsilon) << title(schedule);
      EXPECT_THAT(peak_activations(schedule), Each(2 * p + 1)) << title(schedule);
    }
  }
}

// The published bubble, (p/2 − 1)(F&B + B − 3W) with passes of half of a rank's layers, and its p + 1
// activations.
TEST(ClosedForm, DualPipeHasItsPublishedBubbleAndPeak) {
  for (const PassCosts& costs : {kEqual, PassCosts{1, 1, 0.7, 0}, PassCosts{2, 2, 1, 0}})
    for (int p = 2; p <= 16; p += 2)
      for (int m = 2 * p; m <= 5 * p; m += 2) {
        const Schedule schedule = make("dualpipe", p, m);
        const double braid = costs.F + costs.I + costs.W, backward = costs.I + costs.W;
        EXPECT_NEAR(bubble(schedule, costs), (p / 2 - 1) * (braid + backward - 3 * costs.W), kEpsilon)
            << title(schedule);
        EXPECT_THAT(peak_activations(schedule), Each(p + 1)) << title(schedule);
      }
}

// The first forward takes 2p hops, then m − p pairs start every other block, and the last backward takes 2p
// hops again: all that is idle is that of one pair's way.
TEST(ClosedForm, DHelixIdlesThe2pMinus2BlocksOfAPairAndPairsAllButItsEnds) {
  for (const PassCosts& costs : {kEqual, PassCosts{1, 1.2, 0.7, 0}})
    for (int p = 1; p <= 16; ++p)
      for (int m = p + 1; m <= 2 * p + 14; ++m) {
        const Schedule schedule = make("dhelix", p, m);
        const double pair = costs.F + costs.I + costs.W;
        EXPECT_NEAR(bubble(schedule, costs), 2 * (p - 1) * pair, kEpsilon) << title(schedule);
        EXPECT_LE(bubble(schedule, costs, Braids::in_turn), bubble(schedule, costs) + kEpsilon);
        if (m >= 2 * p) {
          EXPECT_THAT(peak_activations(schedule), Each(2 * p + 1)) << title(schedule);
        }
        for (const auto& blocks : schedule.ranks)
          EXPECT_EQ(std::ranges::count_if(blocks, &Block::braided), 2 * (m - p)) << title(schedule);
      }
}

// Where the last group is whole, of groups of p and of ⌈p/2⌉ microbatches.
TEST(ClosedForm, GisHasItsPublishedBubbleAndPeaks) {
  for (int p = 1; p <= 16; ++p)
    for (const int v : {1, 2, 3, 5})
      for (const auto& [name, group] : {std::pair{"gis", p}, {"gis-h", (p + 1) / 2}})
        for (const int groups : {2, 3, 5}) {
          const Schedule schedule = make(name, p, groups * group, v);
          SCOPED_TRACE(title(schedule) + " v=" + std::to_string(v));
          EXPECT_NEAR(bubble(schedule, kEqual), (p - 1) * 2 + (v - 1) * (p - group), kEpsilon);
          std::vector<int> peaks;
          for (int rank = 0; rank < p; ++rank) peaks.push_back(group * (v - 1) + p - rank);
          EXPECT_EQ(peak_activations(schedule), peaks);
        }
}

TEST(ClosedForm, UniformIdlesLessThanAWayDownAndUpOfEveryChunk) {
  for (int p = 2; p <= 16; ++p)
    for (const int v : {1, 2, 3, 5})
      for (const int m : {1, p, 3 * p + 1}) {
        const Schedule schedule = make("uniform", p, m, v);
        EXPECT_LT(bubble(schedule, kEqual), v * (p - 1) * 3) << title(schedule) << " v=" << v;
      }
}

// The authors' generator prints this bubble of its longest span, where n activations are alive.
TEST(ClosedForm, VSearchHasTheBubbleThatItsAuthorsExpectOfItsMemory) {
  Sample sampled;
  for (int p = 2; p <= 16; ++p)
    for (const int limit : {std::max(p + p % 2, 4), p + 2, 3 * p / 2 + 1, 2 * p})
      for (const int m : {2 * p, 3 * p + 1}) {
        if (!sampled()) continue;
        const Schedule schedule = make_schedule(
            find_generator("v-search"), {.pp = p, .microbatches = m, .costs = kEqual, .options = {limit}});
        const int n = std::ranges::max(peak_activations(schedule));
        const int expected = 3 * p - 1 - 3 * n + std::max(3 * p, p - 1 + 2 * (1 + (n + 1) / 2));
        EXPECT_NEAR(run_order(schedule, kEqual).longest_span() - 6 * m, expected, kEpsilon)
            << title(schedule) << " n=" << n;
        EXPECT_LE(n, limit) << title(schedule);
      }
}

TEST(ClosedForm, OneF1BVHoldsTwoThirdsOf1F1BAndItsBubbleDoesNotGrow) {
  for (int p = 2; p <= 16; ++p) {
    const double few = bubble(make("1f1b-v", p, 2 * p), kEqual);
    for (const int m : {2 * p + 1, 5 * p}) {
      const Schedule schedule = make("1f1b-v", p, m);
      EXPECT_THAT(peak_activations(schedule), Each(2 * (2 * p / 3 + 1))) << title(schedule);
      EXPECT_NEAR(bubble(schedule, kEqual), few, kEpsilon) << title(schedule);
    }
  }
}

// With one wave and p microbatches two passes of F and one B of the way are idle on each other rank. Each
// further doubling of the waves nearly halves the idle time, as a share of the step.
TEST(ClosedForm, HanayoHoldsWhat1F1BHoldsAndMoreWavesIdleLess) {
  for (int p = 1; p <= 16; ++p) {
    const auto made = [&](int v, int m) { return make_schedule(find_generator("hanayo"), {p, m, v}); };
    for (const int v : {1, 2, 3, 4, 8})
      for (const int m : {1, p, 2 * p + 1, 4 * p})
        EXPECT_EQ(std::ranges::max(peak_activations(made(v, m))), std::min(m, p) * v) << title(made(v, m));
    for (const int m : {p, 3 * p}) EXPECT_NEAR(bubble(made(1, m), kEqual), (p - 1) * 3, kEpsilon);
    EXPECT_NEAR(bubble(made(2, p), kEqual), (p - 1) * 4, kEpsilon);
    for (const int v : {2, 4})
      EXPECT_LE(bubble(made(2 * v, p), kEqual) / (2 * v), 0.6 * bubble(made(v, p), kEqual) / v) << p;
  }
}

// In the steady state the pairs are DualPipeV's. It has no others, and W apart from I at both ends.
TEST(ClosedForm, DHelixHasThePairsOfDualPipeV) {
  for (int p = 1; p <= 6; ++p)
    for (const int m : {2 * p, 3 * p, 20}) {
      const Schedule w = make("dhelix", p, m), v = make("dualpipev", p, m);
      for (int rank = 0; rank < p; ++rank)
        for (const Block& block : v.ranks[rank])
          if (block.braided()) {
            EXPECT_THAT(w.ranks[rank], testing::Contains(block)) << title(w);
          }
    }
}

// STP's bubbles are (p − 1)(2F + I + max(F, I) − 3W) and (p − 1)(F + I − W).
TEST(ClosedForm, StpMemoryHasAtMostTheBubblesOfStpAndDualPipeV) {
  for (const double W : {1.0, 0.8, 0.7, 0.5, 0.2}) {
    const PassCosts costs{1, 1, W, 0};
    for (int p = 1; p <= 16; ++p) {
      for (int m = 2 * p; m <= 2 * p + 14; ++m) {
        const Schedule schedule = make("stp-memory", p, m);
        EXPECT_NEAR(bubble(schedule, costs), (p - 1) * (3 - 2 * W), kEpsilon) << title(schedule);
        EXPECT_NEAR(bubble(schedule, costs, Braids::in_turn), (p - 1) * (2 - W), kEpsilon) << title(schedule);
      }
    }
  }
}

// The bubble rates of Table 5 of "Zero Bubble Pipeline Parallelism" (arXiv 2401.10241), computed from the
// times that its authors profiled (its Table 9).

struct Row {
  int p, m, layers;
  PassCosts costs;  // milliseconds
  double one_f_one_b, interleaved, zb_h1, zb_h2, zb_1p, zb_2p;

  [[nodiscard]] double of_microbatch() const { return costs.F + costs.I + costs.W; }
  [[nodiscard]] double rate(double bubble) const { return bubble / (bubble + m * of_microbatch()); }
};

const std::vector<Row> kTable5 = {
    {8, 24, 22, {18.522, 18.086, 9.337, 0.601}, 0.2431, 0.1055, 0.1585, 0.1083, 0.1585, 0.0433},
    {8, 32, 22, {18.513, 18.086, 9.331, 0.626}, 0.1985, 0.0818, 0.1242, 0.0837, 0.1242, 0.0039},
    {8, 64, 22, {18.546, 18.097, 9.321, 0.762}, 0.1240, 0.0443, 0.0674, 0.0444, 0.0674, 0.0026},
    {32, 96, 62, {10.419, 10.207, 7.715, 0.408}, 0.2646, 0.1493, 0.1421, 0.0641, 0.1421, 0.0038},
    {32, 128, 62, {10.408, 10.204, 7.703, 0.408}, 0.2168, 0.1164, 0.1106, 0.0490, 0.1106, 0.0029},
    {32, 256, 62, {10.402, 10.248, 7.698, 0.460}, 0.1352, 0.0624, 0.0594, 0.0257, 0.0594, 0.0018}};

Schedule make(const std::string& name, const Row& row, double kept_for_W = 1) {
  return make_schedule(find_generator(name),
                       {.pp = row.p, .microbatches = row.m, .costs = row.costs, .kept_for_W = kept_for_W});
}

// As the table prints it. The cost of an order is the longest span of a rank.
double printed(double rate) { return std::round(rate * 1e4) / 1e4; }
double printed(const Row& row, const Schedule& schedule) {
  return printed(row.rate(run_order(schedule, row.costs).longest_span() - row.m * row.of_microbatch()));
}

TEST(ZeroBubbleTable5, RatesOfOrdersAreThePrintedOnes) {
  for (const Row& row : kTable5) {
    SCOPED_TRACE("p=" + std::to_string(row.p) + " m=" + std::to_string(row.m));
    EXPECT_DOUBLE_EQ(printed(row, make("1f1b", row)), row.one_f_one_b);
    EXPECT_DOUBLE_EQ(printed(row, make("zb-h2", row)), row.zb_h2);
    EXPECT_DOUBLE_EQ(printed(row, make("zb-1p", row)), row.zb_1p);
  }
}

// Its Table 1: of the s·b·(34h + 5as) bytes that a layer keeps, W needs 32·s·b·h. Held whole until W, the
// same limit leaves a rate of up to 0.10.
TEST(ZeroBubbleTable5, Zb2psRatesAreThePrintedOnesIfIFreesWhatWDoesNotNeed) {
  for (const Row& row : kTable5) {
    const double h = row.p == 8 ? 2304 : 6144, a = row.p == 8 ? 24 : 48;
    for (const double kept_for_W : {0., 32 * h / (34 * h + 5 * a * 1024)}) {
      const Schedule schedule = make("zb-2p", row, kept_for_W);
      EXPECT_DOUBLE_EQ(printed(row, schedule), row.zb_2p) << title(schedule) << ' ' << kept_for_W;
      EXPECT_THAT(peak_activations(schedule, true), Each(Le(2 * row.p))) << title(schedule);
    }
    const Schedule schedule = make("zb-2p", row);
    const double until_W = printed(row, make("zb-2p", row));
    EXPECT_GT(until_W, row.zb_2p) << title(schedule);
    EXPECT_LT(until_W, 0.105) << title(schedule);
  }
}

// These two columns are closed forms: (p − 1)(F + I − W + 4·hop) for ZB-H1, which belongs to another order
// than the one that its authors released, and (p − 1)S/v + ((2v − 1)p − 2)·hop for 1F1B-I, with S = F + I + W
// of a rank, which leaves out hops that the order's steady state pays.
TEST(ZeroBubbleTable5, TheOtherColumnsAreClosedFormsBelowWhatOrdersTake) {
  for (const Row& row : kTable5) {
    SCOPED_TRACE("p=" + std::to_string(row.p) + " m=" + std::to_string(row.m));
    const int v = (row.layers + 2) / row.p;  // one layer a chunk; embedding and head count as one each
    const auto& [F, I, W, hop] = row.costs;
    EXPECT_DOUBLE_EQ(printed(row.rate((row.p - 1) * (F + I - W + 4 * hop))), row.zb_h1);
    EXPECT_DOUBLE_EQ(
        printed(row.rate((row.p - 1) * row.of_microbatch() / v + ((2 * v - 1) * row.p - 2) * hop)),
        row.interleaved);
    const PassCosts of_chunk{row.costs.F / v, row.costs.I / v, row.costs.W / v, row.costs.p2p};
    const Schedule interleaved = make_schedule(
        find_generator("1f1b-i"), {.pp = row.p, .microbatches = row.m, .chunks = v, .costs = of_chunk});
    const double of_order =
        row.rate(run_order(interleaved, of_chunk).longest_span() - row.m * row.of_microbatch());
    EXPECT_GT(of_order, row.interleaved);
    EXPECT_LT(of_order, row.interleaved + 0.0036);
    EXPECT_GT(printed(row, make("zb-h1", row)), row.zb_h1);
    EXPECT_LT(printed(row, make("zb-h1", row)), row.zb_h1 + 0.024);
  }
}

// For many sizes, limits and costs.
TEST(ZbAuto, LimitsCountUntilWOrOnRequestUntilI) {
  for (int p = 1; p <= kMostRanks; ++p)
    for (const int m : {1, 2, p, 2 * p + 1, 5 * p})
      for (const int limit : {1, 2, p, 2 * p, 3 * p})
        for (const PassCosts& costs :
             {kEqual, kUnequal, PassCosts{1, 2, 0.5, 0.2}, PassCosts{1, 0.4, 2, 0}}) {
          for (const int kept_for_W : {0, 1}) {
            const Schedule schedule =
                make_schedule(find_generator("zb-auto"), {.pp = p,
                                                          .microbatches = m,
                                                          .costs = costs,
                                                          .options = {limit},
                                                          .kept_for_W = double{1} * kept_for_W});
            EXPECT_THAT(peak_activations(schedule, kept_for_W == 0), Each(Le(limit)))
                << title(schedule) << ' ' << limit;
          }
        }
}

}  // namespace
}  // namespace stp
