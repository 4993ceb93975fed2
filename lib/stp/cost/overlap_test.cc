// Costs and savings of overlap: the rates that made the times, and the published experiments.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "stp/cost/overlap.h"

namespace stp {
namespace {

TEST(Overlap, SolvesTheRatesThatMadeTheTimes) {
  std::mt19937 random(811);
  std::uniform_real_distribution<double> seconds(0.1, 10), rate(0.3, 1);
  for (int draw = 0; draw < 1000; ++draw) {
    const double compute = seconds(random), communication = seconds(random);
    const double r = rate(random), s = rate(random);
    // Both run until the shorter is done, the rest alone.
    const double both = std::min(compute / r, communication / s);
    const OverlapTimes times{compute, communication, both + compute - r * both,
                             both + communication - s * both};
    const OverlapFigures figures = overlap_figures(times);
    ASSERT_NEAR(figures.compute_rate, r, 1e-9);
    ASSERT_NEAR(figures.communication_rate, s, 1e-9);
    ASSERT_NEAR(figures.together_s + figures.saved_s, compute + communication, 1e-9);
    ASSERT_NEAR(figures.exposed_s + compute, figures.together_s, 1e-9);
  }
}

TEST(Overlap, OfThePapersExperimentsIsTheirSevenAndAHalfPercentAndTwoPointSix) {
  const OverlapFigures gemm = overlap_figures({8.605, 3.364, 9.251, 3.364 / 0.9});
  EXPECT_NEAR(gemm.compute_slowdown, 0.075, 0.0005);
  EXPECT_NEAR(gemm.compute_rate, 0.83, 0.005);
  EXPECT_NEAR(gemm.saved_s, 11.969 - 9.251, 1e-9);
  const OverlapFigures all_reduce = overlap_figures({0.334, 1.643, 0.334 / 0.83, 1.685});
  EXPECT_NEAR(all_reduce.communication_slowdown, 0.026, 0.0005);
  EXPECT_NEAR(all_reduce.communication_rate, 0.9, 0.005);
}

TEST(SimulatedOverlap, ExposesWhatItCostsByHand) {
  const auto exposed_share = [](double compute_s, double all_reduce_s, const Contention& contention) {
    return simulated_overlap(compute_s, all_reduce_s, contention).exposed_share;
  };
  EXPECT_DOUBLE_EQ(exposed_share(10, 4, {}), 0);
  EXPECT_DOUBLE_EQ(exposed_share(1, 4, {}), 0.75);  // what outlasts the compute
  EXPECT_DOUBLE_EQ(exposed_share(0, 4, {0.5, 0.5}), 1);
  // The all-reduce takes 4 / 0.8 = 5, in which the compute loses 2.5.
  EXPECT_DOUBLE_EQ(exposed_share(10, 4, {0.5, 0.8}), 2.5 / 4);
  // Two experiments of the paper's table, which its rates were solved from: 8.605 and 3.364 take 9.251 ms
  // together, 0.334 and 1.643 take 1.685.
  EXPECT_NEAR(8.605 + 3.364 * exposed_share(8.605, 3.364, {0.83, 0.90}), 9.251, 0.002 * 9.251);
  EXPECT_NEAR(0.334 + 1.643 * exposed_share(0.334, 1.643, {0.83, 0.90}), 1.685, 0.002 * 1.685);
}

}  // namespace
}  // namespace stp
