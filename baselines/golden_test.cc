// Orders of tests/golden: what their files say of them, and what our generators make of the same p, m and v.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "baselines/registry.h"
#include "support/golden.h"
#include "support/order_times.h"

namespace stp {
namespace {

using nlohmann::json;

PassCosts costs_of(const json& entry) {
  return {entry.at("F"), entry.at("I"), entry.at("W"), entry.at("p2p")};
}

Schedule make(const std::string& name, const Golden& golden, const PassCosts& costs = {},
              int memory_limit = 0) {
  return make_schedule(find_generator(name), {golden.schedule.pp(),
                                              golden.schedule.all_microbatches(),
                                              golden.schedule.chunks(),
                                              costs,
                                              {memory_limit}});
}

TEST(Golden, EveryOrderIsThere) {
  std::map<std::string, int> count;
  for (const Golden& golden : golden_orders())
    ++count[golden.file.substr(0, std::min(golden.file.find("_p"), golden.file.find("-limit")))];
  const std::map<std::string, int> expected{
      {"1f1b", 6},  {"1f1b-i", 6},    {"1f1b-v", 4},  {"dualpipe", 7}, {"dualpipev", 6},
      {"gis", 4},   {"gis-h", 4},     {"stp", 10},    {"uniform", 4},  {"v-half", 6},
      {"v-min", 6}, {"v-search", 18}, {"zb-1p", 6},   {"zb-2p", 6},    {"zb-auto", 21},
      {"zb-h1", 6}, {"zb-v", 9},      {"vocab-1", 3}, {"vocab-2", 3},  {"interlaced", 3}};
  EXPECT_EQ(count, expected);
}

// Other authors' orders and their times, which show that ours are counted right.
TEST(Golden, MakespansAndPeaksAreThoseOfTheFiles) {
  for (const Golden& golden : golden_orders()) {
    SCOPED_TRACE(golden.file);
    if (golden.data.contains("peak_microbatches")) {
      EXPECT_EQ(json(peak_activations(golden.schedule)), golden.data["peak_microbatches"]);
      continue;
    }
    ASSERT_FALSE(golden.data["makespan"].empty());
    for (const json& entry : golden.data["makespan"]) {
      const PassCosts costs = costs_of(entry["costs"]);
      EXPECT_NEAR(run_order(golden.schedule, costs).makespan(), entry["atomic"], kEpsilon);
      EXPECT_NEAR(run_order(golden.schedule, costs, Braids::in_turn).makespan(), entry["early"], kEpsilon);
    }
    const json& peak = golden.data["peak"];
    EXPECT_EQ(json(peak_activations(golden.schedule)), peak["until_W"]);
    EXPECT_EQ(json(peak_activations(golden.schedule, true)), peak["until_I"]);
  }
}

class OfGenerators : public testing::TestWithParam<const char*> {};

std::string test_name(const testing::TestParamInfo<const char*>& test) {
  std::string name = test.param;
  std::erase(name, '-');
  return name;
}

using ExactGolden = OfGenerators;

// For the costs and the limit of the file, if it has any.
TEST_P(ExactGolden, OrdersAreEqualBlockByBlock) {
  for (const std::string end : {"_", "-limit"}) {
    for (const Golden& golden : golden_orders(GetParam() + end)) {
      SCOPED_TRACE(golden.file);
      const json& made_for = golden.data["generated_for"];
      const int limit = golden.data.value("limit", 0);
      const Schedule schedule =
          make(GetParam(), golden, made_for.contains("I") ? costs_of(made_for) : PassCosts{}, limit);
      EXPECT_EQ(schedule.placement.name(), golden.schedule.placement.name());
      EXPECT_EQ(schedule.ranks, golden.schedule.ranks);
      if (limit > 0) {
        EXPECT_THAT(peak_activations(schedule), testing::Each(testing::Le(limit)));
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Orders, ExactGolden,
                         testing::Values("stp", "1f1b", "1f1b-i", "1f1b-v", "zb-h1", "dualpipe", "dualpipev",
                                         "gis", "gis-h", "uniform", "vocab-1", "vocab-2", "interlaced",
                                         "zb-auto", "zb-1p", "zb-2p", "v-search"),
                         test_name);

// Under entry `entry` of the file's makespans, by both rules.
void expect_no_slower(const Schedule& schedule, const Golden& golden, size_t entry) {
  const json& expected = golden.data["makespan"][entry];
  const PassCosts costs = costs_of(expected["costs"]);
  EXPECT_LE(run_order(schedule, costs).makespan(), expected["atomic"].get<double>() + kEpsilon);
  EXPECT_LE(run_order(schedule, costs, Braids::in_turn).makespan(),
            expected["early"].get<double>() + kEpsilon);
}

void expect_no_higher(const Schedule& schedule, const Golden& golden) {
  for (const bool freed_at_I : {false, true}) {
    const auto expected = golden.data["peak"][freed_at_I ? "until_I" : "until_W"].get<std::vector<int>>();
    const auto found = peak_activations(schedule, freed_at_I);
    for (size_t rank = 0; rank < found.size(); ++rank) EXPECT_LE(found[rank], expected[rank]) << rank;
  }
}

using NoWorse = OfGenerators;

TEST_P(NoWorse, MakespansAndPeaksAreAtMostTheGoldenOnes) {
  for (const Golden& golden : golden_orders(GetParam() + std::string("_"))) {
    SCOPED_TRACE(golden.file);
    const Schedule schedule = make(GetParam(), golden);
    expect_no_slower(schedule, golden, 0);
    expect_no_higher(schedule, golden);
  }
}

INSTANTIATE_TEST_SUITE_P(Orders, NoWorse, testing::Values("v-half", "v-min", "zb-1p", "zb-2p"), test_name);

// For equal costs, for unequal ones, and for those that the authors made their order for. What each
// rank holds is compared at the costs that theirs was made for: at others it is slower, and ranks of ours but
// the highest may hold more.
TEST(ZbVGolden, OrdersForAnyOfTheCostsAreNoSlowerUnderThemAndHoldNoMoreAtTheirs) {
  for (const Golden& golden : golden_orders("zb-v_")) {
    SCOPED_TRACE(golden.file);
    const PassCosts of_authors = costs_of(golden.data["generated_for"]);
    for (const PassCosts& costs : {kEqual, kUnequal}) {
      const Schedule schedule = make("zb-v", golden, costs);
      for (const size_t entry : {0, 1}) expect_no_slower(schedule, golden, entry);
      EXPECT_LE(std::ranges::max(peak_activations(schedule)),
                std::ranges::max(golden.data["peak"]["until_W"].get<std::vector<int>>()));
      if (costs.W / costs.F == of_authors.W / of_authors.F) expect_no_higher(schedule, golden);
    }
    const Schedule schedule = make("zb-v", golden, of_authors);
    expect_no_slower(schedule, golden, 0);
    expect_no_higher(schedule, golden);
    EXPECT_LE(run_order(schedule, of_authors).makespan(),
              run_order(golden.schedule, of_authors).makespan() + 1e-6);
  }
}

}  // namespace
}  // namespace stp
