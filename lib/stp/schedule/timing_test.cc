// Where time_blocks() ends early. What it makes of orders: baselines/schedules_test.cc.
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

}  // namespace
}  // namespace stp
