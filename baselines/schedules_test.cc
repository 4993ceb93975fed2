// All generators, by their properties over a range of p, m and v.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <random>

#include "baselines/registry.h"
#include "stp/schedule/merge_backward.h"
#include "stp/schedule/share_vocabulary.h"
#include "support/effort.h"
#include "support/order_times.h"
#include "support/refusal.h"
#include "support/schedules.h"

namespace stp::schedules_test {
namespace {

Schedule make(const std::string& name, int pp, int microbatches, int chunks = 0, const PassCosts& costs = {},
              int memory_limit = 0) {
  return make_schedule(find_generator(name), {pp, microbatches, chunks, costs, {memory_limit}});
}

int most(const std::vector<int>& numbers) { return *std::ranges::max_element(numbers); }

// ---- properties of all generators ----

bool is_refused(const std::string& name, int p, int m) {
  if (name == "1f1b-i" || name == "1f1b-i-braided") return m % p != 0;
  if (name == "dualpipev") return m < 2 * p;
  if (name == "dualpipe") return m < 2 * p || m % 2 != 0 || p % 2 != 0;
  return false;
}

// make_schedule() validates what a generator makes.
TEST(Generators, MakeValidSchedulesOrRefuse) {
  Sample sampled;
  for (const Generator* generator : generators()) {
    const std::string name = generator->name;
    for (int v = 1; v <= 4; ++v) {
      if (v != generator->chunks && !generator->any_chunks) continue;
      for (int p = 1; p <= 11; ++p) {
        for (int m = 1; m <= 40; m += m < 26 ? 1 : 3) {
          if (!sampled() || (name == "v-search" && (m + p) % 7 > 0)) continue;  // a search takes long
          SCOPED_TRACE(name + " p=" + std::to_string(p) + " m=" + std::to_string(m) +
                       " v=" + std::to_string(v));
          std::optional<Schedule> schedule;
          const std::string refused = refusal([&] { schedule = make(name, p, m, v); });
          EXPECT_EQ(!schedule, is_refused(name, p, m)) << refused;
          if (!schedule) {
            EXPECT_THAT(refused, testing::HasSubstr(name));
            continue;
          }
          EXPECT_EQ(schedule->name, name);
          EXPECT_EQ(schedule->pp(), p);
          EXPECT_EQ(schedule->chunks(), v);
          EXPECT_EQ(schedule->all_microbatches(), m);
        }
      }
    }
  }
}

TEST(Generators, SayHowManyMicrobatchesDualPipeVNeeds) {
  for (int p = 1; p <= 11; ++p)
    EXPECT_THAT(refusal([&] { make("dualpipev", p, 2 * p - 1); }),
                testing::AllOf(testing::HasSubstr("microbatches"),
                               testing::HasSubstr("m ≥ 2p = " + std::to_string(2 * p)),
                               testing::HasSubstr("use more microbatches")));
}

TEST(Generators, NameSmallerSchedulesOfTheirPlacement) {
  int named = 0;
  for (const Generator* generator : generators())
    for (const char* name : generator->smaller) {
      if (name == nullptr) continue;
      ++named;
      for (const int p : {2, 4, 8}) {
        const Schedule larger = make(generator->name, p, 8 * p), smaller = make(name, p, 8 * p);
        EXPECT_EQ(smaller.placement, larger.placement);
        EXPECT_LT(std::ranges::max(peak_activations(smaller)), std::ranges::max(peak_activations(larger)))
            << title(smaller);
      }
    }
  EXPECT_GT(named, 0);
}

// Whatever the order, all ranks can share its vocabulary, for the memory of one microbatch a barrier.
TEST(Generators, MakeOrdersWhoseVocabularyAllRanksCanShare) {
  Sample sampled;
  int shared = 0;
  for (const Generator* generator : generators())
    for (int p = 2; p <= 8; ++p)
      for (const int m : {1, p, 2 * p + 1, 4 * p}) {
        if (generator->slow || is_refused(generator->name, p, m) || !sampled()) continue;
        const Schedule schedule = make(generator->name, p, m);
        if (!is_single_and_whole(schedule)) continue;
        for (const int barriers : {1, 2}) {
          const Schedule made =
              share_vocabulary(schedule, barriers == 1 ? Vocabulary::one_barrier : Vocabulary::two_barriers);
          ASSERT_NO_THROW(validate(made)) << title(made);
          EXPECT_LE(most(peak_activations(made)),
                    most(peak_activations(schedule)) + barriers * schedule.chunks())
              << title(made);
          ++shared;
        }
      }
  EXPECT_GT(shared, 0);
}

// ---- adjacent I and W as one B ----

int count(const Schedule& schedule, Pass pass) {
  return on_all_ranks(schedule, [&](const std::vector<Block>& blocks) {
    int found = 0;
    for (const Block& block : blocks)
      for (const Action& action : block.actions()) found += action.pass == pass;
    return found;
  });
}

// Published: nearly every I of ZB-V has its W right behind where all passes take alike.
TEST(MergeBackward, MergesNearlyAllOfZbVAndFewOfStp) {
  for (const auto& [p, m] : {std::pair{2, 192}, {4, 64}, {4, 192}, {8, 64}, {8, 256}}) {
    const auto share = [&](const char* name) {
      const Schedule schedule = make(name, p, m);
      return 1 - double{1} * count(merge_backward(schedule), Pass::I) / count(schedule, Pass::I);
    };
    const std::string at = "p " + std::to_string(p) + " m " + std::to_string(m);
    EXPECT_GT(share("zb-v"), 0.9) << at;
    EXPECT_LT(share("stp"), 0.5) << at;
  }
}

// ---- 1F1B-I, braided ----

TEST(BraidedInterleaved, BraidsEveryBackwardOfTheSteadyStateOnEveryRank) {
  for (int p = 1; p <= 6; ++p) {
    const int m = 4 * p, v = 2;
    const Schedule schedule = make("1f1b-i-braided", p, m, v);
    for (int r = 0; r < p; ++r) {
      const int warm_up = 2 * (p - r - 1) + (v - 1) * p + 1;
      int braids = 0;
      for (const Block& block : schedule.ranks[r]) {
        if (!block.braided()) continue;
        ++braids;
        EXPECT_EQ(block.actions()[0].pass, Pass::F);
        EXPECT_EQ(block.actions()[1].pass, Pass::B);
      }
      EXPECT_EQ(braids, v * m - warm_up);
      EXPECT_EQ(schedule.ranks[r].size(), warm_up + braids + warm_up);
    }
  }
}

// Its forwards and its backwards come in the order of 1F1B-I.
TEST(BraidedInterleaved, KeepsTheOrderOfEachPass) {
  const auto passes = [](const std::vector<Block>& blocks, Pass pass) {
    std::vector<Action> actions;
    for (const Block& block : blocks)
      std::ranges::copy_if(block.actions(), std::back_inserter(actions),
                           [&](const Action& action) { return action.pass == pass; });
    return actions;
  };
  const Schedule plain = make("1f1b-i", 4, 16), braided = make("1f1b-i-braided", 4, 16);
  for (int r = 0; r < 4; ++r)
    for (const Pass pass : {Pass::F, Pass::B})
      EXPECT_EQ(passes(plain.ranks[r], pass), passes(braided.ranks[r], pass));
}

// ---- schedules that follow patterns ----

TEST(Generators, OfZbVAndVPatternsSplitEveryBackwardAndBraidNothing) {
  for (const char* name : {"zb-v", "v-half", "v-min", "v-search"})
    for (const auto& blocks : make(name, 4, 10).ranks) {
      EXPECT_EQ(blocks.size(), 6 * 10) << name;
      for (const Block& block : blocks) EXPECT_FALSE(block.braided() || block.actions()[0].pass == Pass::B);
    }
}

// V-Half and V-Min know nothing of costs.
TEST(Generators, BubblesAreAtMostThoseOfTheAuthorsGenerators) {
  struct Row {
    const char* name;
    int p, m;
    PassCosts costs;
    double bubble;
  };
  for (const Row& row : {Row{"v-half", 8, 64, kEqual, 17},
                         {"v-half", 8, 64, kUnequal, 22.1},
                         {"v-half", 16, 256, kEqual, 41},
                         {"v-half", 16, 256, kUnequal, 51.4},
                         {"v-min", 8, 64, kEqual, 27},
                         {"v-min", 8, 64, kUnequal, 82.8},
                         {"v-min", 16, 256, kEqual, 59},
                         {"v-min", 16, 256, kUnequal, 286.7},
                         {"zb-v", 8, 64, kUnequal, 8.75},
                         {"zb-v", 16, 256, kUnequal, 18.75}})
    EXPECT_LE(bubble(make(row.name, row.p, row.m, 0, row.costs), row.costs), row.bubble + kEpsilon)
        << row.name << " p=" << row.p;
}

TEST(VPattern, PeaksAreThePublishedOnes) {
  for (int p = 1; p <= 12; ++p) {
    for (int m = 1; m <= 5 * p; ++m) {
      EXPECT_LE(most(peak_activations(make("v-half", p, m))), (p + 2) / 2 * 2) << p << " " << m;
      EXPECT_LE(most(peak_activations(make("v-min", p, m))), (p + 4) / 3 * 2) << p << " " << m;
    }
  }
}

TEST(VPattern, BubblesForEqualCostsDoNotGrowWithTheMicrobatches) {
  for (const std::string name : {"v-half", "v-min"})
    for (int p = 1; p <= 10; ++p)
      EXPECT_NEAR(bubble(make(name, p, 12 * p), kEqual), bubble(make(name, p, 3 * p), kEqual), kEpsilon)
          << name << " p=" << p;
}

// ---- ZB-V ----

TEST(ZbV, BubbleDoesNotGrowWithTheMicrobatches) {
  for (const PassCosts& costs : {kEqual, kUnequal}) {
    const double few = bubble(make("zb-v", 8, 24, 0, costs), costs);
    EXPECT_NEAR(bubble(make("zb-v", 8, 96, 0, costs), costs), few, 0.05 * few);
  }
}

TEST(ZbV, MoreMemoryHidesSlowTransfers) {
  const PassCosts slow{1, 1, 1, 1};
  const double usual = bubble(make("zb-v", 8, 64, 0, slow), slow);
  EXPECT_LT(bubble(make("zb-v", 8, 64, 0, slow, 32), slow), usual / 2);
}

// Any costs and limit: valid, as every schedule that is made, and within the limit.
void expect_within_limit(int p, int m, const PassCosts& costs, int limit, const std::string& name = "zb-v") {
  SCOPED_TRACE(name + " p=" + std::to_string(p) + " m=" + std::to_string(m) + " limit=" +
               std::to_string(limit) + " F=" + std::to_string(costs.F) + " I=" + std::to_string(costs.I) +
               " W=" + std::to_string(costs.W) + " p2p=" + std::to_string(costs.p2p));
  EXPECT_LE(most(peak_activations(make(name, p, m, 0, costs, limit))), limit == 0 ? 2 * p : limit);
}

TEST(CostsOfZb, OfAnyProportionGiveValidOrdersWithinTheLimit) {
  const std::vector<PassCosts> all = {
      {0, 0, 0, 0},  {0, 0, 0, 1},  {1, 0, 0, 0},      {0, 1, 0, 0},       {0, 0, 1, 0},
      {1, 1, 0, 0},  {1, 0, 1, 3},  {0, 1, 1, 0.5},    {1, 1, 1, 10},      {1, 1, 50, 0.1},
      {50, 1, 1, 0}, {1, 50, 1, 0}, {1e-9, 1, 1e9, 1}, {1e90, 1, 1, 1e90}, {1e-90, 1e-90, 0, 1e-95}};
  for (const PassCosts& costs : all)
    for (const int p : {1, 2, 3, 6})
      for (const int m : {1, 2, 5, 13})
        for (const int limit : {0, 2, 3, 2 * p + 3}) {
          expect_within_limit(p, m, costs, limit);
          expect_within_limit(p, m, costs, std::max(limit - 1, 0), "zb-auto");
        }
}

TEST(CostsOfZb, AtRandomGiveValidOrdersWithinTheLimit) {
  std::mt19937 random{7};
  std::uniform_real_distribution<double> exponent(-2, 2);
  const auto draw = [&] { return random() % 5 == 0 ? 0 : std::pow(10, exponent(random)); };
  for (int i = 0; i < 300; ++i) {
    const int p = 1 + static_cast<int>(random() % 9), m = 1 + static_cast<int>(random() % 32);
    const PassCosts costs{draw(), draw(), draw(), draw()};
    const int limit = random() % 4 == 0 ? 0 : 2 + static_cast<int>(random() % (4 * p));
    expect_within_limit(p, m, costs, limit);
    for (const char* name : {"zb-auto", "zb-2p"}) expect_within_limit(p, m, costs, limit / 2, name);
  }
}

TEST(CostsOfZb, ForWhichTheBestLimitOfIdleTimeIsTheLeastGiveValidOrders) {
  expect_within_limit(4, 17, {2.512, 1.384, 1.924, 0.75}, 10);
  expect_within_limit(9, 11, {0.828, 0.668, 2.632, 0}, 15);
  expect_within_limit(7, 27, {2.532, 0.312, 3.652, 0.7632}, 15);
}

TEST(CostsOfZb, OfTransfersWithMuchMemoryGiveValidOrders) {
  for (int p = 1; p <= 9; ++p)
    for (int limit = 2 * p; limit <= 6 * p; ++limit)
      expect_within_limit(p, 17, {1, 1, 1, 0.03 * limit}, limit);
  for (const char* name : {"zb-v", "zb-auto"})
    expect_within_limit(4, 20, {0, 1, 1, 1}, std::numeric_limits<int>::max(), name);
}

TEST(CostsOfZb, OfTimeAndOfMemoryAreRefusedWhereTheyCannotBeMet) {
  const auto refused = [](const PassCosts& costs, int limit, const char* name = "zb-v") {
    return !refusal([&] { make(name, 4, 4, 0, costs, limit); }).empty();
  };
  EXPECT_FALSE(refused({}, 2));
  for (const int limit : {1, -1}) EXPECT_TRUE(refused({}, limit));
  EXPECT_FALSE(refused({}, 1, "zb-auto"));
  EXPECT_TRUE(refused({}, -1, "zb-auto"));
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  for (const double bad : {-1.0, nan, infinity, 1e300}) {
    EXPECT_TRUE(refused({bad, 1, 1, 0}, 0));
    EXPECT_TRUE(refused({1, 1, 1, bad}, 0));
  }
}

// ---- the search over V schedules ----

// For equal costs. The search looks at the longest span of a rank alone.
TEST(VSearch, IsNoSlowerThanThePointsOfItsFamilyWithTheirMemory) {
  for (const char* name : {"v-half", "v-min", "zb-v"})
    for (int p = 1; p <= kMostRanks / 2; ++p)
      for (const int m : {1, p, 2 * p, 3 * p}) {
        const Schedule point = make(name, p, m);
        const Schedule found = make("v-search", p, m, 0, kEqual, most(peak_activations(point)));
        const OrderTimes of_point = run_order(point, kEqual), of_found = run_order(found, kEqual);
        EXPECT_LE(of_found.longest_span(), of_point.longest_span() + kEpsilon) << title(point);
        if (m < 2 * p) continue;
        EXPECT_LE(of_found.makespan(), of_point.makespan() + kEpsilon) << title(point);
      }
}

TEST(VSearch, AtAnyCostsAndLimitIsValidOrNamesTheLimitFromWhichOnItIs) {
  std::mt19937 random{3};
  std::uniform_real_distribution<double> cost(0, 2);
  for (int i = 0; i < (kStride > 1 ? 20 : 60); ++i) {
    const int p = 1 + static_cast<int>(random() % 7), m = 1 + static_cast<int>(random() % 20);
    const PassCosts costs{cost(random), cost(random), cost(random), cost(random)};
    int limit = static_cast<int>(random() % (2 * p + 2));
    const std::string refused = refusal([&] { make("v-search", p, m, 0, costs, limit); });
    const std::string allow = "allow ";
    if (!refused.empty()) {
      ASSERT_THAT(refused, testing::HasSubstr(allow));
      const int named = std::stoi(refused.substr(refused.find(allow) + allow.size()));
      EXPECT_GT(named, limit);
      limit = named;
    }
    expect_within_limit(p, m, costs, limit, "v-search");
  }
}

// It is searched for with 256 microbatches then.
TEST(VSearch, BubbleOfManyMicrobatchesIsThatOfFew) {
  EXPECT_NEAR(bubble(make("v-search", 4, 300, 0, kEqual, 5), kEqual),
              bubble(make("v-search", 4, 20, 0, kEqual, 5), kEqual), kEpsilon);
}

TEST(ZbAuto, HoldsThreeHalvesOfTheRanksByDefault) {
  for (const int p : {4, 5, 8})
    EXPECT_EQ(make("zb-auto", p, 4 * p).ranks, make("zb-auto", p, 4 * p, 0, {}, (3 * p + 1) / 2).ranks);
}

}  // namespace
}  // namespace stp::schedules_test
