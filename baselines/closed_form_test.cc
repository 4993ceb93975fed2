// Schedules with explicit orders, and the two that follow a pattern: against the golden orders, against their
// papers' closed forms for bubbles and memory, and at the limits of their ranges.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>

#include "baselines/registry.h"
#include "stp/base/error.h"
#include "stp/base/json_input.h"
#include "stp/schedule/timing.h"
#include "stp/schedule/validate.h"
#include "support/schedules.h"

namespace stp {
namespace {

using nlohmann::json;

constexpr double kEpsilon = 1e-9;
constexpr PassCosts kEqual{1, 1, 1, 0};
constexpr PassCosts kUnequal{1, 1, 0.7, 0.05};

Schedule make(const std::string& name, int pp, int microbatches) {
  return make_schedule(find_generator(name), {pp, microbatches, 0, {}, 0});
}

std::vector<json> golden_files(const std::string& name) {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(STP_SOURCE_DIR "/tests/golden"))
    if (entry.path().filename().string().starts_with(name + "_")) paths.push_back(entry.path().string());
  std::ranges::sort(paths);
  std::vector<json> files;
  for (const std::string& path : paths) files.push_back(read_json_file(path));
  return files;
}

std::string title(const Schedule& schedule) {
  return schedule.name + " p=" + std::to_string(schedule.pp()) +
         " m=" + std::to_string(schedule.microbatches);
}

// ---- running an order ----

// A braid starts when all its inputs are ready and releases all outputs at its end, or its actions run one
// after the other.
enum class Braids { atomic, in_turn };

struct Times {
  std::vector<double> first, last;  // by rank: when its first action starts and its last one ends

  [[nodiscard]] double makespan() const { return *std::ranges::max_element(last); }
  [[nodiscard]] double longest_span() const {
    double longest = 0;
    for (size_t rank = 0; rank < first.size(); ++rank) longest = std::max(longest, last[rank] - first[rank]);
    return longest;
  }
};

double cost_of(Pass pass, const PassCosts& costs) {
  return std::array{costs.F, costs.I, costs.W, costs.I + costs.W}[static_cast<size_t>(pass)];
}

Times run_order(const Schedule& schedule, const PassCosts& costs, Braids braids = Braids::atomic) {
  constexpr double kNever = std::numeric_limits<double>::infinity();
  const Placement& placement = schedule.placement;
  const int p = schedule.pp(), stages = placement.stages(), m = schedule.microbatches;
  std::vector<double> forward(static_cast<size_t>(stages) * m, kNever), backward = forward;
  const auto input = [&](int rank, const Action& action) {
    const int stage = placement.stage(rank, action.chunk);
    const auto from = [&](const std::vector<double>& ends, int other) {
      return ends[static_cast<size_t>(other) * m + action.microbatch] +
             (placement.rank_of(other) == rank ? 0 : costs.p2p);
    };
    if (action.pass == Pass::W) return 0.0;
    if (action.pass == Pass::F) return stage == 0 ? 0.0 : from(forward, stage - 1);
    return stage == stages - 1 ? from(forward, stage) : from(backward, stage + 1);
  };

  Times run{std::vector<double>(p, kNever), std::vector<double>(p, 0)};
  std::vector<size_t> block_of(p, 0), action_of(p, 0);
  for (bool moved = true; moved;) {
    moved = false;
    for (int rank = 0; rank < p; ++rank) {
      while (block_of[rank] < schedule.ranks[rank].size()) {
        auto actions = schedule.ranks[rank][block_of[rank]].actions();
        if (braids == Braids::in_turn) actions = actions.subspan(action_of[rank], 1);
        double start = run.last[rank], cost = 0;
        for (const Action& action : actions) {
          start = std::max(start, input(rank, action));
          cost += cost_of(action.pass, costs);
        }
        if (start == kNever) break;
        run.first[rank] = std::min(run.first[rank], start);
        run.last[rank] = start + cost;
        for (const Action& action : actions) {
          const size_t at = static_cast<size_t>(placement.stage(rank, action.chunk)) * m + action.microbatch;
          if (action.pass == Pass::F) forward[at] = run.last[rank];
          if (is_backward(action.pass)) backward[at] = run.last[rank];
        }
        action_of[rank] += actions.size();
        if (action_of[rank] == schedule.ranks[rank][block_of[rank]].actions().size()) {
          ++block_of[rank];
          action_of[rank] = 0;
        }
        moved = true;
      }
    }
  }
  for (int rank = 0; rank < p; ++rank)
    if (block_of[rank] < schedule.ranks[rank].size())
      ADD_FAILURE() << title(schedule) << ": rank " << rank << " is stuck";
  return run;
}

double work(const Schedule& schedule, const PassCosts& costs) {
  return schedule.chunks() * schedule.microbatches * (costs.F + costs.I + costs.W);
}

double bubble(const Schedule& schedule, const PassCosts& costs, Braids braids = Braids::atomic) {
  return run_order(schedule, costs, braids).makespan() - work(schedule, costs);
}

int most(const std::vector<int>& numbers) { return *std::ranges::max_element(numbers); }

// time_blocks() is another implementation of the same.
TEST(ClosedForm, OrdersRunAsTheTimingOfTheirBlocksSays) {
  std::vector<Schedule> schedules;
  for (const Generator* generator : generators())
    for (const int p : {1, 3, 4}) schedules.push_back(make(generator->name, p, 4 * p));
  std::mt19937 random(1);
  for (int chunks = 1; chunks <= 4; ++chunks) {
    schedules.push_back(random_schedule(random, Placement::loop(3, chunks), 6));
    schedules.push_back(random_schedule(random, Placement::wave(4, chunks), 5));
  }
  for (const Schedule& schedule : schedules) {
    for (const PassCosts& costs : {kEqual, kUnequal, PassCosts{2, 0.5, 0, 1}}) {
      const Timing timing = time_blocks(schedule, costs);
      const Times run = run_order(schedule, costs);
      for (int rank = 0; rank < schedule.pp(); ++rank) {
        EXPECT_EQ(timing[rank].size(), schedule.ranks[rank].size()) << title(schedule);
        EXPECT_NEAR(timing[rank].front().start, run.first[rank], kEpsilon) << title(schedule);
        EXPECT_NEAR(timing[rank].back().end, run.last[rank], kEpsilon) << title(schedule);
      }
    }
  }
}

// ---- against the golden orders ----

class ExplicitOrders : public testing::TestWithParam<const char*> {};

TEST_P(ExplicitOrders, AreThoseOfTheAuthors) {
  const auto files = golden_files(GetParam());
  EXPECT_EQ(files.size(), 6);
  for (const json& golden : files) {
    const Schedule schedule = make(GetParam(), golden["p"], golden["m"]);
    EXPECT_EQ(schedule.placement.name(), golden["placement"]);
    ASSERT_EQ(schedule.ranks.size(), golden["ranks"].size());
    for (size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
      std::vector<std::string> blocks;
      for (const Block& block : schedule.ranks[rank]) blocks.push_back(to_string(block));
      EXPECT_EQ(blocks, golden["ranks"][rank].get<std::vector<std::string>>()) << title(schedule);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Baselines, ExplicitOrders, testing::Values("zb-h1", "dualpipev"),
                         [](const auto& test) {
                           std::string name = test.param;
                           std::erase(name, '-');
                           return "of_" + name;
                         });

class NoWorse : public testing::TestWithParam<const char*> {};

TEST_P(NoWorse, MakespanAndPeaksAreAtMostTheGoldenOnes) {
  const auto files = golden_files(GetParam());
  EXPECT_EQ(files.size(), 6);
  for (const json& golden : files) {
    const Schedule schedule = make(GetParam(), golden["p"], golden["m"]);
    SCOPED_TRACE(title(schedule));
    const json& expected = golden["makespan"][0];
    const json& costs = expected["costs"];
    const PassCosts equal{costs["F"], costs["I"], costs["W"], costs["p2p"]};
    EXPECT_LE(run_order(schedule, equal).makespan(), expected["atomic"].get<double>() + kEpsilon);
    EXPECT_LE(run_order(schedule, equal, Braids::in_turn).makespan(),
              expected["early"].get<double>() + kEpsilon);
    const auto until_W = peak_activations(schedule), until_I = peak_activations(schedule, true);
    for (size_t rank = 0; rank < until_W.size(); ++rank) {
      EXPECT_LE(until_W[rank], golden["peak"]["until_W"][rank].get<int>()) << "rank " << rank;
      EXPECT_LE(until_I[rank], golden["peak"]["until_I"][rank].get<int>()) << "rank " << rank;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Baselines, NoWorse, testing::Values("zb-h1", "dualpipev", "v-half", "v-min"),
                         [](const auto& test) {
                           std::string name = test.param;
                           std::erase(name, '-');
                           return "than_" + name;
                         });

// ---- validity ----

TEST(ClosedForm, OrdersAreValidForAnyRanksAndMicrobatches) {
  for (const std::string name : {"gpipe", "zb-h1", "zb-h2", "v-half", "v-min", "dhelix"})
    for (int p = 1; p <= 11; ++p)
      for (int m = 1; m <= 36; m += m < 26 ? 1 : 5)
        EXPECT_NO_THROW(validate(make(name, p, m))) << name << " p=" << p << " m=" << m;
}

TEST(ClosedForm, DualPipeVIsValidFromTwicePAndRefusedBelow) {
  for (int p = 1; p <= 11; ++p) {
    for (int m = 2 * p; m <= 2 * p + 9; ++m)
      EXPECT_NO_THROW(validate(make("dualpipev", p, m))) << p << " " << m;
    for (int m = 1; m < 2 * p; ++m) {
      try {
        make("dualpipev", p, m);
        ADD_FAILURE() << "p=" << p << " m=" << m << " is not refused";
      } catch (const InputError& error) {
        EXPECT_THAT(error.what(),
                    testing::AllOf(testing::HasSubstr("microbatches"), testing::HasSubstr("dualpipev"),
                                   testing::HasSubstr("m ≥ 2p = " + std::to_string(2 * p)),
                                   testing::HasSubstr("use more microbatches")));
      }
    }
  }
}

TEST(ClosedForm, OtherNumbersOfChunksAreRefused) {
  for (const std::string name : {"gpipe", "zb-h1", "zb-h2", "dualpipev", "dhelix", "v-half", "v-min"}) {
    const Generator& generator = find_generator(name);
    for (int v = 1; v <= 3; ++v) {
      if (v == generator.chunks) continue;
      EXPECT_THROW(make_schedule(generator, {2, 8, v, {}, 0}), InputError) << name << " v=" << v;
    }
  }
}

// ---- bubbles and memory in closed form ----

TEST(ClosedForm, GpipeHasTheBubbleOf1F1BAndHoldsEverything) {
  for (int p = 1; p <= 9; ++p) {
    for (int m = 1; m <= 20; m += 3) {
      const Schedule schedule = make("gpipe", p, m);
      EXPECT_NEAR(bubble(schedule, {1, 0.9, 0.7, 0}), (p - 1) * (1 + 0.9 + 0.7), kEpsilon);
      EXPECT_THAT(peak_activations(schedule), testing::Each(m));
    }
  }
}

TEST(ClosedForm, ZbH1HasItsPublishedBubbleAndTheMemoryOf1F1B) {
  for (int p = 1; p <= 9; ++p) {
    for (int m = 2 * p - 1; m <= 30; ++m) {
      const Schedule schedule = make("zb-h1", p, m);
      EXPECT_NEAR(bubble(schedule, kEqual), (p - 1) * (1 + 1 - 1), kEpsilon) << title(schedule);
      EXPECT_THAT(peak_activations(schedule), testing::Each(p)) << title(schedule);
    }
  }
}

TEST(ClosedForm, ZbH2HasItsPublishedBubbleInTheLongestSpanOfARank) {
  for (const PassCosts& costs :
       {kEqual, {1, 1, 0.7, 0}, {1, 1, 0.5, 0}, {1.2, 1, 0.8, 0}, {1, 1.2, 0.8, 0}}) {
    for (int p = 1; p <= 9; ++p) {
      for (int m = 2 * p - 1; m <= 30; ++m) {
        const Schedule schedule = make("zb-h2", p, m);
        const Times run = run_order(schedule, costs);
        EXPECT_NEAR(run.longest_span() - work(schedule, costs), (p - 1) * (costs.F + costs.I - 2 * costs.W),
                    kEpsilon)
            << title(schedule);
        // The last rank starts p − 1 forwards late and then never idles.
        EXPECT_NEAR(run.makespan() - work(schedule, costs), (p - 1) * costs.F, kEpsilon) << title(schedule);
      }
    }
  }
}

TEST(ClosedForm, ZbH2HoldsTwicePLessOneUntilWOnEveryRank) {
  for (int p = 1; p <= 9; ++p) {
    for (int m = 1; m <= 30; ++m) {
      const Schedule schedule = make("zb-h2", p, m);
      EXPECT_THAT(peak_activations(schedule), testing::Each(std::min(m, 2 * p - 1)));
      const auto until_I = peak_activations(schedule, true);
      for (int rank = 0; rank < p; ++rank)
        EXPECT_EQ(until_I[rank], std::min(m, 2 * (p - rank) - 1)) << title(schedule);
    }
  }
}

// With few microbatches, the path down and up and one W: the formula of m ≤ p. With more, the last rank's
// work.
TEST(ClosedForm, ZbH2TakesNoLongerThanAnyOrderMust) {
  for (int p = 1; p <= 9; ++p) {
    for (int m = 1; m <= 30; ++m) {
      const double way = (m + p - 1) * 2 + 1, last_rank = 3 * m + p - 1;
      EXPECT_NEAR(run_order(make("zb-h2", p, m), kEqual).makespan(), std::max(way, last_rank), kEpsilon)
          << p << " " << m;
    }
  }
}

TEST(ClosedForm, DualPipeVHasItsMeasuredBubblesAndPeak) {
  for (int p = 2; p <= 9; ++p) {
    for (int m = 2 * p; m <= 30; ++m) {
      const Schedule schedule = make("dualpipev", p, m);
      EXPECT_NEAR(bubble(schedule, kEqual), 2 * (p - 1), kEpsilon) << title(schedule);
      EXPECT_NEAR(bubble(schedule, kEqual, Braids::in_turn), p - 1, kEpsilon) << title(schedule);
      EXPECT_THAT(peak_activations(schedule), testing::Each(2 * p + 1)) << title(schedule);
    }
  }
}

// The first forward takes 2p hops, then m − p pairs start every other block, and the last backward takes 2p
// hops again: all that is idle is that of one pair's way.
TEST(ClosedForm, DHelixIdlesThe2pMinus2BlocksOfAPairAndPairsAllButItsEnds) {
  for (const PassCosts& costs : {kEqual, PassCosts{1, 1.2, 0.7, 0}})
    for (int p = 1; p <= 9; ++p)
      for (int m = p + 1; m <= 30; ++m) {
        const Schedule schedule = make("dhelix", p, m);
        const double pair = costs.F + costs.I + costs.W;
        EXPECT_NEAR(bubble(schedule, costs), 2 * (p - 1) * pair, kEpsilon) << title(schedule);
        EXPECT_LE(bubble(schedule, costs, Braids::in_turn), bubble(schedule, costs) + kEpsilon);
        if (m >= 2 * p) {
          EXPECT_THAT(peak_activations(schedule), testing::Each(2 * p + 1)) << title(schedule);
        }
        for (const auto& blocks : schedule.ranks)
          EXPECT_EQ(std::ranges::count_if(blocks, &Block::braided), 2 * (m - p)) << title(schedule);
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
    for (int p = 1; p <= 9; ++p) {
      for (int m = 2 * p; m <= 30; ++m) {
        const Schedule schedule = make("stp-memory", p, m);
        EXPECT_NEAR(bubble(schedule, costs), (p - 1) * (3 - 2 * W), kEpsilon) << title(schedule);
        EXPECT_NEAR(bubble(schedule, costs, Braids::in_turn), (p - 1) * (2 - W), kEpsilon) << title(schedule);
      }
    }
  }
}

// ---- V-Half and V-Min ----

TEST(VPattern, PeaksAreThePublishedOnes) {
  for (int p = 1; p <= 12; ++p) {
    for (int m = 1; m <= 5 * p; ++m) {
      EXPECT_LE(most(peak_activations(make("v-half", p, m))), (p + 2) / 2 * 2) << p << " " << m;
      EXPECT_LE(most(peak_activations(make("v-min", p, m))), (p + 4) / 3 * 2) << p << " " << m;
    }
  }
}

TEST(VPattern, SplitsEveryBackward) {
  for (const std::string name : {"v-half", "v-min"})
    for (const auto& blocks : make(name, 4, 9).ranks) EXPECT_EQ(blocks.size(), 6 * 9);
}

// The bubbles of the authors' generator for (8, 64) and (16, 256).
TEST(VPattern, BubblesAreAtMostThoseOfTheAuthorsGenerator) {
  const Schedule half_8 = make("v-half", 8, 64), half_16 = make("v-half", 16, 256);
  EXPECT_LE(bubble(half_8, kEqual), 17);
  EXPECT_LE(bubble(half_8, kUnequal), 22.1 + kEpsilon);
  EXPECT_LE(bubble(half_16, kEqual), 41);
  EXPECT_LE(bubble(half_16, kUnequal), 51.4 + kEpsilon);
  const Schedule min_8 = make("v-min", 8, 64), min_16 = make("v-min", 16, 256);
  EXPECT_LE(bubble(min_8, kEqual), 27);
  EXPECT_LE(bubble(min_8, kUnequal), 82.8 + kEpsilon);
  EXPECT_LE(bubble(min_16, kEqual), 59);
  EXPECT_LE(bubble(min_16, kUnequal), 286.7 + kEpsilon);
}

TEST(VPattern, BubblesForEqualCostsDoNotGrowWithTheMicrobatches) {
  for (const std::string name : {"v-half", "v-min"})
    for (int p = 1; p <= 10; ++p)
      EXPECT_NEAR(bubble(make(name, p, 12 * p), kEqual), bubble(make(name, p, 3 * p), kEqual), kEpsilon)
          << name << " p=" << p;
}

}  // namespace
}  // namespace stp
