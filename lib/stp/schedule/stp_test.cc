// The STP generator alone. Tests in baselines/ and tests/ compare it with golden orders and other schedules.
#include <gtest/gtest.h>

#include <algorithm>

#include "support/effort.h"
#include "support/schedules.h"

namespace stp {

namespace {

int alone(const Schedule& schedule) {
  return on_all_ranks(schedule, [](const auto& blocks) { return alone(blocks); });
}
int exposed(const Schedule& schedule) {
  return on_all_ranks(schedule, [](const auto& blocks) { return exposed(blocks); });
}

// The method's braids: a forward with a backward, or with a W, of the same chunk if it is a backward.
int braids(const std::vector<Block>& blocks) {
  return static_cast<int>(std::ranges::count_if(blocks, [](const Block& block) {
    return block.braided() && block.actions()[0].pass == Pass::F && block.actions()[1].pass != Pass::F;
  }));
}

class Stp : public testing::TestWithParam<int> {
 protected:
  const int p = GetParam();
};

TEST_P(Stp, IsValidForAnyNumberOfMicrobatches) {
  for (const int m : sample_of(1, 65)) {
    SCOPED_TRACE("m=" + std::to_string(m));
    const Schedule schedule = stp_schedule(p, m);
    EXPECT_EQ(schedule.placement.name(), "v");
    EXPECT_EQ(schedule.microbatches, m);
    EXPECT_LE(std::ranges::max(peak_activations(schedule)), p == 1 ? 4 : std::min(4 * p - 1, 2 * m));
  }
}

// In ZB-V all 4m a rank are exposed; in 1F1B-I, which runs multiples of p only, those of its 2m forwards.
TEST_P(Stp, ExposesFewerAllReducesThanZbVAnd1f1bI) {
  // One microbatch has no partner for a braid; p = m = 2 would be slower than 1F1B-I.
  for (const int m : sample_of(p <= 2 ? p + 1 : p, 3 * p + 1)) {
    SCOPED_TRACE("m=" + std::to_string(m));
    const Schedule schedule = stp_schedule(p, m);
    EXPECT_LT(exposed(schedule), 4 * m * p);
    if (m % p != 0) continue;
    EXPECT_LT(alone(schedule), 2 * m * p);
    EXPECT_LT(exposed(schedule), m == p ? 3 * m * p : 2 * m * p);
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, Stp, testing::Range(1, kMostRanks + 1), testing::PrintToStringParamName());

// On one rank it is gradient accumulation: F of a microbatch braided with B of another, except the first and
// the last.
TEST(StpOnOneRank, BraidsEveryMicrobatchWithTheNext) {
  EXPECT_EQ(to_text(stp_schedule(1, 1)), "# schedule stp, placement v\nF0.0 F1.0 B1.0 B0.0\n");
  EXPECT_EQ(to_text(stp_schedule(1, 3)),
            "# schedule stp, placement v\n"
            "F0.0 F1.0 F0.1 F1.1&B1.0 F0.2&B0.0 F1.2&B1.1 B0.1 B1.2 B0.2\n");
  for (int m = 2; m <= 64; ++m) {
    const Schedule schedule = stp_schedule(1, m);
    EXPECT_EQ(braids(schedule.ranks[0]), 2 * m - 3);
    EXPECT_EQ(exposed(schedule), 3);
  }
}

// If both have all-reduces, a forward is braided with the backward of its own chunk.
TEST(StpOnFewMicrobatches, BraidsTheMethodsBraids) {
  for (const auto& [p, m] : {std::pair{2, 4}, {4, 8}, {4, 10}, {8, 16}, {8, 22}}) {
    for (const auto& blocks : stp_schedule(p, m).ranks) {
      EXPECT_GE(braids(blocks), m / 2);
      for (const Block& block : blocks) {
        const auto actions = block.actions();
        if (!block.braided() || actions[0].pass != Pass::F || !is_backward(actions[1].pass)) continue;
        EXPECT_EQ(actions[0].chunk, actions[1].chunk) << to_string(block);
      }
    }
  }
}

TEST(StpOnFewMicrobatches, IsTheSameEveryTime) {
  for (const auto& [p, m] : {std::pair{3, 4}, {8, 9}, {kMostRanks, 2 * kMostRanks - 2}})
    EXPECT_EQ(stp_schedule(p, m).ranks, stp_schedule(p, m).ranks);
}

TEST(StpOnFewMicrobatches, IsMadeForLargePipelinesToo) {
  const int p = (kStride > 1 ? 2 : 4) * kMostRanks;
  for (const int m : {1, p, 3 * p - 2}) EXPECT_NO_THROW(validate(stp_schedule(p, m))) << m;
}

}  // namespace
}  // namespace stp
