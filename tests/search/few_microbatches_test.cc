// STP against the best of all orders with as many microbatches as ranks, at the costs of
// tests/stp_quality_test.cc: all-reduces of 0.25 a chunk and direction, or of 0.25 each.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>

#include "baselines/registry.h"
#include "search/all_orders.h"
#include "support/schedules.h"
#include "support/unit_costs.h"

namespace stp {
namespace {

int simulated(const Schedule& schedule, int all_reduce) {
  const double each = static_cast<double>(all_reduce) / kEighths;
  return static_cast<int>(std::lround(step_time(schedule, each) * kEighths));
}

// With default costs or with the passes' costs, whichever is faster.
int simulated(const char* name, int p, int m, int all_reduce) {
  const PassCosts costs = pass_costs(unit_costs(static_cast<double>(all_reduce) / kEighths), 1);
  const auto time = [&](const PassCosts& costs) {
    return simulated(make_schedule(find_generator(name), {.pp = p, .microbatches = m, .costs = costs}),
                     all_reduce);
  };
  return std::min(time({}), time(costs));
}

struct Case {
  int p, all_reduce, fewest;
};

class AsManyMicrobatchesAsRanks : public testing::TestWithParam<Case> {
 protected:
  // No slower than either schedule that STP is compared with.
  [[nodiscard]] int longest() const {
    return std::min(simulated("zb-v", p, p, all_reduce), simulated("1f1b-i", p, p, all_reduce));
  }

  const int p = GetParam().p, all_reduce = GetParam().all_reduce;
  const int loop = 2 * p * p;  // exposed in 1F1B-I: its forwards
};

// So at m = p, STP must be slower or hide less.
TEST_P(AsManyMicrobatchesAsRanks, NoOrderIsAsFastAndHidesMoreIfPairsDoNotHide) {
  const AllOrders all(p, p, all_reduce, longest(), loop - 1, Pairs::do_not_hide);
  EXPECT_EQ(all.fewest(), -1);
}

// The same search finds orders as soon as there are any.
TEST_P(AsManyMicrobatchesAsRanks, SomeOrderIsIfPairsHideEachOther) {
  const int fewest = GetParam().fewest;
  EXPECT_LT(fewest, loop);
  EXPECT_EQ(AllOrders(p, p, all_reduce, longest(), fewest, Pairs::hide).fewest(), fewest);
  EXPECT_EQ(AllOrders(p, p, all_reduce, longest(), fewest - 1, Pairs::hide).fewest(), -1);
}

// The search times blocks as the simulator does.
TEST_P(AsManyMicrobatchesAsRanks, AnyOrderTakesWhatTheSimulatorSays) {
  const AllOrders none(p, p, all_reduce, 0, 0, Pairs::hide);
  std::mt19937 random{3};
  for (int i = 0; i < 300; ++i) {
    const Schedule schedule = random_schedule(random, Placement::v(p), p);
    EXPECT_EQ(none.time(schedule), simulated(schedule, all_reduce)) << to_text(schedule);
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, AsManyMicrobatchesAsRanks,
                         testing::Values(Case{2, 1, 7}, Case{2, 2, 4}, Case{3, 1, 12}, Case{3, 2, 7}),
                         [](const auto& test) {
                           return "p" + std::to_string(test.param.p) + "_all_reduce_" +
                                  std::to_string(test.param.all_reduce) + "_eighths";
                         });

}  // namespace
}  // namespace stp
