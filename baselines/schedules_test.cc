// All generators: against the orders of tests/golden, and by their properties over a range of p, m and v.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <filesystem>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>

#include "baselines/registry.h"
#include "stp/base/error.h"
#include "stp/base/json_input.h"
#include "stp/schedule/merge_backward.h"
#include "stp/schedule/validate.h"
#include "support/effort.h"
#include "support/schedules.h"

namespace stp::schedules_test {
namespace {

using nlohmann::json;

constexpr double kEpsilon = 1e-9;

// ---- golden files ----

struct Golden {
  std::string file;
  Schedule schedule;
  json data;
};

std::vector<Golden> golden_files() {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(STP_SOURCE_DIR "/tests/golden"))
    if (entry.path().extension() == ".json") paths.push_back(entry.path().string());
  std::ranges::sort(paths);
  std::vector<Golden> files;
  for (const std::string& path : paths) {
    json data = read_json_file(path);
    std::string name = data["schedule"];
    std::ranges::transform(name, name.begin(),
                           [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    Schedule schedule{name, Placement::named(data["placement"], data["p"], data["v"]), data["m"], {}};
    for (const json& row : data["ranks"]) {
      auto& blocks = schedule.ranks.emplace_back();
      for (const json& block : row) blocks.push_back(parse_block(block.get<std::string>()));
    }
    files.push_back({std::filesystem::path(path).filename().string(), std::move(schedule), std::move(data)});
  }
  return files;
}

std::vector<Golden> golden_files(const std::string& name) {
  std::vector<Golden> files = golden_files();
  std::erase_if(files, [&](const Golden& golden) { return golden.schedule.name != name; });
  return files;
}

PassCosts costs_of(const json& entry) {
  return {entry.at("F"), entry.at("I"), entry.at("W"), entry.at("p2p")};
}

// ---- the evaluator: the two rules of makespan of tests/golden/README.md ----

enum class Rule { atomic, early };

class Evaluator {
 public:
  Evaluator(const Schedule& schedule, const PassCosts& costs)
      : schedule_(schedule),
        costs_(costs),
        forward_(static_cast<size_t>(schedule.placement.stages()) * schedule.microbatches, kNotYet),
        backward_(forward_) {}

  double makespan(Rule rule) {
    const int p = schedule_.pp();
    std::vector<double> time(p, 0);
    std::vector<size_t> next(p, 0);
    // A braid under `early` is a list of single actions.
    std::vector<std::vector<Block>> ranks = schedule_.ranks;
    if (rule == Rule::early) {
      for (auto& blocks : ranks) {
        std::vector<Block> singles;
        for (const Block& block : blocks)
          singles.insert(singles.end(), block.actions().begin(), block.actions().end());
        blocks = std::move(singles);
      }
    }
    for (bool moved = true; moved;) {
      moved = false;
      for (int rank = 0; rank < p; ++rank) {
        for (; next[rank] < ranks[rank].size(); ++next[rank]) {
          const Block& block = ranks[rank][next[rank]];
          double start = time[rank], cost = 0;
          for (const Action& action : block.actions()) {
            start = std::max(start, input(rank, action));
            cost += cost_of(action);
          }
          if (start == kNotYet) break;
          time[rank] = start + cost;
          for (const Action& action : block.actions()) finish(rank, action, time[rank]);
          moved = true;
        }
      }
    }
    for (int rank = 0; rank < p; ++rank)
      if (next[rank] < ranks[rank].size()) ADD_FAILURE() << "rank " << rank << " is stuck";
    return *std::ranges::max_element(time);
  }

 private:
  static constexpr double kNotYet = std::numeric_limits<double>::infinity();

  [[nodiscard]] size_t index(int stage, const Action& action) const {
    return static_cast<size_t>(stage) * schedule_.microbatches + action.microbatch;
  }
  [[nodiscard]] double cost_of(const Action& action) const {
    switch (action.pass) {
      case Pass::F:
        return costs_.F;
      case Pass::I:
        return costs_.I;
      case Pass::W:
        return costs_.W;
      case Pass::B:
        return costs_.I + costs_.W;
    }
    return 0;
  }
  [[nodiscard]] double input(int rank, const Action& action) const {
    const Placement& placement = schedule_.placement;
    const int stage = placement.stage(rank, action.chunk);
    const auto hop = [&](int other) { return placement.rank_of(other) == rank ? 0.0 : costs_.p2p; };
    if (action.pass == Pass::W) return 0;  // its I is before it on its rank
    if (action.pass == Pass::F) return stage == 0 ? 0 : forward_[index(stage - 1, action)] + hop(stage - 1);
    if (stage + 1 == placement.stages()) return forward_[index(stage, action)];
    return backward_[index(stage + 1, action)] + hop(stage + 1);
  }
  void finish(int rank, const Action& action, double time) {
    const int stage = schedule_.placement.stage(rank, action.chunk);
    if (action.pass == Pass::F) forward_[index(stage, action)] = time;
    if (is_backward(action.pass)) backward_[index(stage, action)] = time;
  }

  const Schedule& schedule_;
  PassCosts costs_;
  std::vector<double> forward_, backward_;  // by virtual stage and microbatch: when its output leaves
};

double makespan(const Schedule& schedule, const PassCosts& costs, Rule rule) {
  return Evaluator(schedule, costs).makespan(rule);
}

double bubble(const Schedule& schedule, const PassCosts& costs) {
  return makespan(schedule, costs, Rule::atomic) -
         schedule.chunks() * schedule.microbatches * (costs.F + costs.I + costs.W);
}

int most(const std::vector<int>& numbers) { return *std::ranges::max_element(numbers); }

std::vector<int> w_queue(const Schedule& schedule) {
  std::vector<int> longest;
  for (const auto& blocks : schedule.ranks) {
    int pending = 0;
    longest.push_back(0);
    for (const Block& block : blocks) {
      for (const Action& action : block.actions())
        pending += (action.pass == Pass::I) - (action.pass == Pass::W);
      longest.back() = std::max(longest.back(), pending);
    }
  }
  return longest;
}

TEST(Golden, EveryFileIsThere) {
  std::map<std::string, int> count;
  for (const Golden& golden : golden_files()) ++count[golden.schedule.name];
  EXPECT_THAT(count, testing::ElementsAre(testing::Pair("1f1b", 6), testing::Pair("1f1b-i", 6),
                                          testing::Pair("dualpipev", 6), testing::Pair("stp", 10),
                                          testing::Pair("v-half", 6), testing::Pair("v-min", 6),
                                          testing::Pair("zb-1p", 6), testing::Pair("zb-2p", 6),
                                          testing::Pair("zb-h1", 6), testing::Pair("zb-v", 6)));
}

TEST(Golden, EveryOrderIsValid) {
  for (const Golden& golden : golden_files()) EXPECT_NO_THROW(validate(golden.schedule)) << golden.file;
}

TEST(Golden, EvaluatorAgreesWithEveryMakespan) {
  for (const Golden& golden : golden_files()) {
    ASSERT_EQ(golden.data["makespan"].size(), 2) << golden.file;
    for (const json& entry : golden.data["makespan"]) {
      const PassCosts costs = costs_of(entry["costs"]);
      EXPECT_NEAR(makespan(golden.schedule, costs, Rule::atomic), entry["atomic"].get<double>(), kEpsilon)
          << golden.file;
      EXPECT_NEAR(makespan(golden.schedule, costs, Rule::early), entry["early"].get<double>(), kEpsilon)
          << golden.file;
    }
  }
}

TEST(Golden, PeakAndWeightQueueAgreeWithEveryFile) {
  for (const Golden& golden : golden_files()) {
    const json& peak = golden.data["peak"];
    EXPECT_EQ(peak_activations(golden.schedule), peak["until_W"].get<std::vector<int>>()) << golden.file;
    EXPECT_EQ(peak_activations(golden.schedule, true), peak["until_I"].get<std::vector<int>>())
        << golden.file;
    EXPECT_EQ(w_queue(golden.schedule), golden.data["w_queue"].get<std::vector<int>>()) << golden.file;
  }
}

// ---- generators against the golden orders ----

Schedule make(const std::string& name, int pp, int microbatches, int chunks = 0, const PassCosts& costs = {},
              int memory_limit = 0) {
  return make_schedule(find_generator(name), {pp, microbatches, chunks, costs, memory_limit});
}

class ExactGolden : public testing::TestWithParam<const char*> {};

TEST_P(ExactGolden, OrdersAreEqualBlockByBlock) {
  for (const Golden& golden : golden_files(GetParam())) {
    ASSERT_EQ(golden.data["match"], "exact") << golden.file;
    const Schedule schedule =
        make(GetParam(), golden.schedule.pp(), golden.schedule.microbatches, golden.schedule.chunks());
    EXPECT_EQ(schedule.name, golden.schedule.name);
    EXPECT_EQ(schedule.placement.name(), golden.schedule.placement.name());
    EXPECT_EQ(to_text(schedule), to_text(golden.schedule)) << golden.file;
  }
}

INSTANTIATE_TEST_SUITE_P(Generators, ExactGolden, testing::Values("stp", "1f1b", "1f1b-i"),
                         [](const auto& test) {
                           std::string name = test.param;
                           std::erase(name, '-');
                           return "of_" + name;
                         });

constexpr PassCosts kEqual{1, 1, 1, 0};
constexpr PassCosts kUnequal{1, 1, 0.7, 0.05};

// The order made for `made_for` is no worse than the golden one under entry `entry`, by both rules.
void expect_no_worse(const Golden& golden, const PassCosts& made_for, size_t entry) {
  const Schedule schedule = make("zb-v", golden.schedule.pp(), golden.schedule.microbatches, 0, made_for);
  const json& expected = golden.data["makespan"][entry];
  const PassCosts costs = costs_of(expected["costs"]);
  EXPECT_LE(makespan(schedule, costs, Rule::atomic), expected["atomic"].get<double>() + kEpsilon)
      << golden.file;
  EXPECT_LE(makespan(schedule, costs, Rule::early), expected["early"].get<double>() + kEpsilon)
      << golden.file;
}

TEST(ZbVGolden, OrderForEqualCostsIsNoSlowerUnderBothCosts) {
  for (const Golden& golden : golden_files("zb-v")) {
    expect_no_worse(golden, kEqual, 0);
    expect_no_worse(golden, kEqual, 1);
  }
}

TEST(ZbVGolden, OrderForUnequalCostsIsNoSlowerUnderThem) {
  for (const Golden& golden : golden_files("zb-v")) {
    expect_no_worse(golden, kUnequal, 1);
    expect_no_worse(golden, kUnequal, 0);
  }
}

TEST(ZbVGolden, OrderForTheCostsOfTheGoldenOrderIsNoSlower) {
  for (const Golden& golden : golden_files("zb-v")) {
    const PassCosts costs = costs_of(golden.data["generated_for"]);
    expect_no_worse(golden, costs, 0);
    const Schedule schedule = make("zb-v", golden.schedule.pp(), golden.schedule.microbatches, 0, costs);
    EXPECT_LE(makespan(schedule, costs, Rule::atomic), makespan(golden.schedule, costs, Rule::atomic) + 1e-6)
        << golden.file;
  }
}

TEST(ZbVGolden, PeakIsNoHigherOnAnyRank) {
  for (const Golden& golden : golden_files("zb-v")) {
    for (const PassCosts& costs : {kEqual, kUnequal, costs_of(golden.data["generated_for"])}) {
      const Schedule schedule = make("zb-v", golden.schedule.pp(), golden.schedule.microbatches, 0, costs);
      const json& peak = golden.data["peak"];
      const auto until_W = peak_activations(schedule), until_I = peak_activations(schedule, true);
      for (size_t rank = 0; rank < until_W.size(); ++rank) {
        EXPECT_LE(until_W[rank], peak["until_W"][rank].get<int>()) << golden.file << " rank " << rank;
        EXPECT_LE(until_I[rank], peak["until_I"][rank].get<int>()) << golden.file << " rank " << rank;
      }
    }
  }
}

// ---- properties of all generators ----

bool is_refused(const std::string& name, int p, int m) {
  if (name == "1f1b-i" || name == "1f1b-i-braided") return m % p != 0;
  if (name == "dualpipev") return m < 2 * p;
  return false;
}

TEST(Generators, MakeValidSchedulesOrRefuse) {
  Sample sampled;
  for (const Generator* generator : generators()) {
    const std::string name = generator->name;
    for (int v = 1; v <= 4; ++v) {
      if (v != generator->chunks && !generator->any_chunks) continue;
      for (int p = 1; p <= 10; ++p) {
        for (int m = 1; m <= 40; m += m < 24 ? 1 : 3) {
          if (!sampled()) continue;
          SCOPED_TRACE(name + " p=" + std::to_string(p) + " m=" + std::to_string(m) +
                       " v=" + std::to_string(v));
          try {
            const Schedule schedule = make(name, p, m, v);
            validate(schedule);
            EXPECT_FALSE(is_refused(name, p, m));
            EXPECT_EQ(schedule.name, name);
            EXPECT_EQ(schedule.pp(), p);
            EXPECT_EQ(schedule.chunks(), v);
            EXPECT_EQ(schedule.microbatches, m);
          } catch (const InputError& error) {
            EXPECT_TRUE(is_refused(name, p, m)) << error.what();
            EXPECT_THAT(error.what(), testing::HasSubstr(name));
          }
        }
      }
    }
  }
}

// Peaks and bubbles that the papers give in closed form.
// ---- adjacent I and W as one B ----

int count(const Schedule& schedule, Pass pass) {
  return on_all_ranks(schedule, [&](const std::vector<Block>& blocks) {
    int found = 0;
    for (const Block& block : blocks)
      for (const Action& action : block.actions()) found += action.pass == pass;
    return found;
  });
}

TEST(MergeBackward, OfEveryScheduleIsValidAndTheSameWork) {
  for (const Generator* generator : generators())
    for (int p = 1; p <= 8; ++p)
      for (int m = 1; m <= 4 * p; m += kStride) {
        std::optional<Schedule> schedule;
        try {
          schedule = make(generator->name, p, m);
        } catch (const InputError&) {
          continue;  // outside the method's range
        }
        SCOPED_TRACE(schedule->name + " p " + std::to_string(p) + " m " + std::to_string(m));
        const Schedule merged = merge_backward(*schedule);
        ASSERT_NO_THROW(validate(merged));
        ASSERT_EQ(passes_by_rank(merged), passes_by_rank(*schedule));
        const int pairs = count(merged, Pass::B) - count(*schedule, Pass::B);
        EXPECT_EQ(count(*schedule, Pass::I) - count(merged, Pass::I), pairs);
        EXPECT_EQ(count(*schedule, Pass::W) - count(merged, Pass::W), pairs);
      }
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

TEST(Generators, HaveTheirPublishedPeaks) {
  for (int p = 2; p <= 8; ++p) {
    const int m = 4 * p;
    EXPECT_EQ(most(peak_activations(make("1f1b", p, m))), p);
    EXPECT_EQ(most(peak_activations(make("1f1b-i", p, m))), 3 * p - 1);
    EXPECT_EQ(most(peak_activations(make("1f1b-i-braided", p, m))), 3 * p);
    EXPECT_EQ(most(peak_activations(make("zb-v", p, m))), 2 * p);
    EXPECT_EQ(most(peak_activations(make("stp", p, m), true)), 3 * p + 1);
    EXPECT_EQ(most(peak_activations(make("stp", p, m))), 4 * p - 1);
  }
}

TEST(Generators, HaveTheirPublishedBubbles) {
  for (int p = 2; p <= 8; ++p) {
    const int m = 4 * p;
    EXPECT_NEAR(bubble(make("1f1b", p, m), {2, 2, 2, 0}), (p - 1) * 6, kEpsilon);
    EXPECT_NEAR(bubble(make("1f1b-i", p, m), kEqual), (p - 1) * 3, kEpsilon);
    EXPECT_NEAR(bubble(make("stp", p, m), kEqual), p - 1, kEpsilon);
    EXPECT_NEAR(bubble(make("zb-v", p, m), kEqual), p - 1, kEpsilon);
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
      for (const Action& action : block.actions())
        if (action.pass == pass) actions.push_back(action);
    return actions;
  };
  const Schedule plain = make("1f1b-i", 4, 16), braided = make("1f1b-i-braided", 4, 16);
  for (int r = 0; r < 4; ++r)
    for (const Pass pass : {Pass::F, Pass::B})
      EXPECT_EQ(passes(plain.ranks[r], pass), passes(braided.ranks[r], pass));
}

// ---- ZB-V ----

TEST(ZbV, SplitsEveryBackwardAndBraidsNothing) {
  for (const auto& blocks : make("zb-v", 4, 10).ranks) {
    EXPECT_EQ(blocks.size(), 60);
    for (const Block& block : blocks) {
      EXPECT_FALSE(block.braided());
      EXPECT_NE(block.actions()[0].pass, Pass::B);
    }
  }
}

TEST(ZbV, BubbleDoesNotGrowWithTheMicrobatches) {
  for (const PassCosts& costs : {kEqual, kUnequal}) {
    const double few = bubble(make("zb-v", 8, 24, 0, costs), costs);
    EXPECT_NEAR(bubble(make("zb-v", 8, 96, 0, costs), costs), few, 0.05 * few);
  }
}

// The bubbles of the authors' generator for unequal costs at (8, 64) and (16, 256).
TEST(ZbV, BubbleIsAtMostThatOfTheAuthorsGenerator) {
  EXPECT_LE(bubble(make("zb-v", 8, 64, 0, kUnequal), kUnequal), 8.75 + kEpsilon);
  EXPECT_LE(bubble(make("zb-v", 16, 256, 0, kUnequal), kUnequal), 18.75 + kEpsilon);
}

TEST(ZbV, MoreMemoryHidesSlowTransfers) {
  const PassCosts slow{1, 1, 1, 1};
  const double usual = bubble(make("zb-v", 8, 64, 0, slow), slow);
  EXPECT_LT(bubble(make("zb-v", 8, 64, 0, slow, 32), slow), usual / 2);
}

class ZbVCosts : public testing::Test {
 protected:
  // Any costs and limit: valid, and within the limit.
  static void expect_good(int p, int m, const PassCosts& costs, int limit) {
    SCOPED_TRACE("p=" + std::to_string(p) + " m=" + std::to_string(m) + " limit=" + std::to_string(limit) +
                 " F=" + std::to_string(costs.F) + " I=" + std::to_string(costs.I) +
                 " W=" + std::to_string(costs.W) + " p2p=" + std::to_string(costs.p2p));
    const Schedule schedule = make("zb-v", p, m, 0, costs, limit);
    EXPECT_NO_THROW(validate(schedule));
    EXPECT_LE(most(peak_activations(schedule)), limit == 0 ? 2 * p : limit);
  }

  std::mt19937 random_{7};
};

TEST_F(ZbVCosts, OfAnyProportionGiveValidOrdersWithinTheLimit) {
  const std::vector<PassCosts> all = {
      {0, 0, 0, 0},  {0, 0, 0, 1},  {1, 0, 0, 0},      {0, 1, 0, 0},       {0, 0, 1, 0},
      {1, 1, 0, 0},  {1, 0, 1, 3},  {0, 1, 1, 0.5},    {1, 1, 1, 10},      {1, 1, 50, 0.1},
      {50, 1, 1, 0}, {1, 50, 1, 0}, {1e-9, 1, 1e9, 1}, {1e90, 1, 1, 1e90}, {1e-90, 1e-90, 0, 1e-95}};
  for (const PassCosts& costs : all) {
    for (const int p : {1, 2, 3, 6}) {
      for (const int m : {1, 2, 5, 13}) {
        expect_good(p, m, costs, 0);
        for (const int limit : {2, 3, 2 * p + 3}) expect_good(p, m, costs, limit);
      }
    }
  }
}

TEST_F(ZbVCosts, AtRandomGiveValidOrdersWithinTheLimit) {
  std::uniform_real_distribution<double> exponent(-2, 2);
  const auto draw = [&] { return random_() % 5 == 0 ? 0 : std::pow(10, exponent(random_)); };
  for (int i = 0; i < 300; ++i) {
    const int p = 1 + static_cast<int>(random_() % 9), m = 1 + static_cast<int>(random_() % 32);
    const PassCosts costs{draw(), draw(), draw(), draw()};
    expect_good(p, m, costs, random_() % 4 == 0 ? 0 : 2 + static_cast<int>(random_() % (4 * p)));
  }
}

TEST_F(ZbVCosts, OfTransfersWithMuchMemoryGiveValidOrders) {
  for (int p = 1; p <= 9; ++p)
    for (int limit = 2 * p; limit <= 6 * p; ++limit) expect_good(p, 17, {1, 1, 1, 0.03 * limit}, limit);
  expect_good(4, 20, {0, 1, 1, 1}, std::numeric_limits<int>::max());
}

TEST_F(ZbVCosts, OfTimeAndOfMemoryAreRefusedWhereTheyCannotBeMet) {
  EXPECT_NO_THROW(make("zb-v", 4, 4, 0, {}, 2));
  EXPECT_THROW(make("zb-v", 4, 4, 0, {}, 1), InputError);
  EXPECT_THROW(make("zb-v", 4, 4, 0, {}, -1), InputError);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  for (const double bad : {-1.0, nan, infinity, 1e300}) {
    EXPECT_THROW(make("zb-v", 4, 4, 0, {bad, 1, 1, 0}), InputError);
    EXPECT_THROW(make("zb-v", 4, 4, 0, {1, 1, 1, bad}), InputError);
  }
}

}  // namespace
}  // namespace stp::schedules_test
