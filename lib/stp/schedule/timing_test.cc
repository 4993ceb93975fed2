// Where time_blocks() ends early, and the vocabulary's passes. What it makes of orders:
// baselines/golden_test.cc, against the times that their authors' programs print.
#include "stp/schedule/timing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "stp/schedule/pipeline_state.h"
#include "support/schedules.h"

namespace stp {

// For messages of gtest.
bool operator==(const BlockTime& a, const BlockTime& b) { return a.start == b.start && a.end == b.end; }
void PrintTo(const BlockTime& time, std::ostream* out) { *out << time.start << "-" << time.end; }

namespace {

using testing::ElementsAre;

TEST(Hops, GoForwardThroughTheStagesAndBack) {
  for (const int stages : {1, 2, 7}) {
    for (int hop = 0; hop < 2 * stages; ++hop) {
      const bool backward = hop >= stages;
      EXPECT_EQ(hop_of(stages, stage_of_hop(stages, hop), backward), hop);
      EXPECT_EQ(stage_of_hop(stages, hop), backward ? 2 * stages - 1 - hop : hop);
    }
  }
}

TEST(TimeBlocks, LeavesOutWhatIsNeverReached) {
  // Rank 1 begins with the microbatch that rank 0 sends only once it has the other one back.
  const Schedule schedule = schedule_of(Placement::loop(2, 1), 2,
                                        {{"F0.0", "B0.0", "F0.1", "B0.1"}, {"F0.1", "B0.1", "F0.0", "B0.0"}});
  const Timing timing = time_blocks(schedule);
  EXPECT_THAT(timing[0], ElementsAre(BlockTime{0, 1}));
  EXPECT_TRUE(timing[1].empty());
  // A braid that waits for itself.
  EXPECT_TRUE(time_blocks(schedule_of(Placement::loop(1, 1), 1, {{"F0.0&B0.0"}}))[0].empty());
}

std::vector<std::vector<double>> starts_of(const std::vector<std::vector<std::string>>& ranks) {
  const Schedule schedule = by_hand(Placement::loop(2, 1), 2, ranks);
  std::vector<std::vector<double>> starts;
  for (const auto& blocks : time_blocks(schedule, {1, 1, 1, 0.25}))
    for (starts.emplace_back(); const BlockTime& block : blocks) starts.back().push_back(block.start);
  return starts;
}

// B0.0 and U0.0 wait until rank 1, which sums up, needs the sum of S; B0.1 waits for S0.1 of rank 0.
TEST(TimeBlocks, GivesSumsOfTheVocabularyWhenAllRanksHaveTheirPartsAndOneNeedsThem) {
  EXPECT_THAT(
      starts_of(
          {{"E0.0", "E0.1", "F0.0", "F0.1", "S0.0", "U0.0", "B0.0", "G0.0", "S0.1", "U0.1", "B0.1", "G0.1"},
           {"E0.0", "E0.1", "F0.0", "S0.0", "F0.1", "B0.0", "U0.0", "S0.1", "B0.1", "U0.1", "G0.0", "G0.1"}}),
      ElementsAre(ElementsAre(0, 0, 0, 1, 2.25, 3.25, 5.5, 7.5, 7.5, 7.5, 9.75, 11.75),
                  ElementsAre(0, 0, 1.25, 2.25, 2.25, 3.25, 5.25, 5.25, 7.5, 9.5, 9.5, 11.75)));
  // Rank 0 comes to U0.0 first.
  EXPECT_THAT(
      starts_of(
          {{"E0.0", "E0.1", "F0.0", "S0.0", "F0.1", "U0.0", "B0.0", "G0.0", "S0.1", "U0.1", "B0.1", "G0.1"},
           {"E0.0", "E0.1", "F0.0", "S0.0", "F0.1", "B0.0", "U0.0", "S0.1", "B0.1", "U0.1", "G0.0", "G0.1"}}),
      ElementsAre(ElementsAre(0, 0, 0, 2.25, 2.25, 4.5, 6.75, 8.75, 8.75, 8.75, 11, 13),
                  ElementsAre(0, 0, 1.25, 2.25, 3.5, 4.5, 6.5, 6.5, 8.75, 10.75, 10.75, 13)));
}

}  // namespace
}  // namespace stp
