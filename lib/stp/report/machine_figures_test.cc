// Figures of machines by hand.
#include "stp/report/machine_figures.h"

#include <gtest/gtest.h>

namespace stp {
namespace {

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
