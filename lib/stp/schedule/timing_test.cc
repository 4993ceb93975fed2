// When blocks run. Against another implementation: baselines/closed_form_test.cc.
#include "stp/schedule/timing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "stp/schedule/pipeline_state.h"
#include "support/schedules.h"

namespace stp {

// For messages of gtest.
bool operator==(const BlockTime& a, const BlockTime& b) { return a.start == b.start && a.end == b.end; }
void PrintTo(const BlockTime& time, std::ostream* out) { *out << time.start << "-" << time.end; }

namespace {

using testing::ElementsAre;

double makespan(const Timing& timing) {
  double latest = 0;
  for (const auto& times : timing)
    if (!times.empty()) latest = std::max(latest, times.back().end);
  return latest;
}

TEST(Hops, GoForwardThroughTheStagesAndBack) {
  for (const int stages : {1, 2, 7}) {
    for (int hop = 0; hop < 2 * stages; ++hop) {
      const bool backward = hop >= stages;
      EXPECT_EQ(hop_of(stages, stage_of_hop(stages, hop), backward), hop);
      EXPECT_EQ(stage_of_hop(stages, hop), backward ? 2 * stages - 1 - hop : hop);
    }
  }
}

TEST(TimeBlocks, WaitsForInputsAndForTheRank) {
  const Schedule schedule = by_hand(
      Placement::loop(2, 1), 2, {{"F0.0", "F0.1", "B0.0", "I0.1", "W0.1"}, {"F0.0", "B0.0", "F0.1", "B0.1"}});
  const Timing timing = time_blocks(schedule, {1, 2, 4, 0.5});
  EXPECT_THAT(timing[0], ElementsAre(BlockTime{0, 1}, BlockTime{1, 2}, BlockTime{9, 15}, BlockTime{16, 18},
                                     BlockTime{18, 22}));
  EXPECT_THAT(timing[1], ElementsAre(BlockTime{1.5, 2.5}, BlockTime{2.5, 8.5}, BlockTime{8.5, 9.5},
                                     BlockTime{9.5, 15.5}));
  EXPECT_EQ(makespan(timing), 22);
}

// An output that stays on its rank takes no p2p: at the turn of the V, and from the last stage's F to its
// backward.
TEST(TimeBlocks, TakesTransferTimeOnlyBetweenRanks) {
  const Schedule schedule =
      by_hand(Placement::v(2), 1, {{"F0.0", "F1.0", "B1.0", "B0.0"}, {"F0.0", "F1.0", "B1.0", "B0.0"}});
  const Timing timing = time_blocks(schedule, {1, 1, 1, 10});
  EXPECT_THAT(timing[0],
              ElementsAre(BlockTime{0, 1}, BlockTime{23, 24}, BlockTime{24, 26}, BlockTime{50, 52}));
  EXPECT_THAT(timing[1],
              ElementsAre(BlockTime{11, 12}, BlockTime{12, 13}, BlockTime{36, 38}, BlockTime{38, 40}));
}

TEST(TimeBlocks, ABraidWaitsForAllItsInputsAndSendsAtItsEnd) {
  const Schedule schedule =
      by_hand(Placement::loop(2, 1), 2, {{"F0.0", "F0.1", "B0.0", "B0.1"}, {"F0.0", "F0.1&B0.0", "B0.1"}});
  const Timing timing = time_blocks(schedule);
  EXPECT_THAT(timing[1], ElementsAre(BlockTime{1, 2}, BlockTime{2, 5}, BlockTime{5, 7}));
  EXPECT_THAT(timing[0], ElementsAre(BlockTime{0, 1}, BlockTime{1, 2}, BlockTime{5, 7}, BlockTime{7, 9}));
}

TEST(TimeBlocks, LeavesOutWhatIsNeverReached) {
  // Rank 1 begins with the microbatch that rank 0 sends only once it has the other one back.
  const Schedule schedule = schedule_of(Placement::loop(2, 1), 2,
                                        {{"F0.0", "B0.0", "F0.1", "B0.1"}, {"F0.1", "B0.1", "F0.0", "B0.0"}});
  const Timing timing = time_blocks(schedule);
  EXPECT_THAT(timing[0], ElementsAre(BlockTime{0, 1}));
  EXPECT_TRUE(timing[1].empty());
  EXPECT_EQ(makespan(timing), 1);
  // A braid that waits for itself.
  EXPECT_TRUE(time_blocks(schedule_of(Placement::loop(1, 1), 1, {{"F0.0&B0.0"}}))[0].empty());
}

TEST(TimeBlocks, RunsTheSameAtUnitCostsInAnyUnit) {
  std::mt19937 random(5);
  for (int round = 0; round < 20; ++round) {
    const Schedule schedule = random_schedule(random, Placement::wave(3, 1 + round % 4), 5);
    const double unit = makespan(time_blocks(schedule));
    EXPECT_EQ(makespan(time_blocks(schedule, {4, 4, 4, 0})), 4 * unit);
    EXPECT_GE(makespan(time_blocks(schedule, {1, 1, 1, 1})), unit);
  }
}

}  // namespace
}  // namespace stp
