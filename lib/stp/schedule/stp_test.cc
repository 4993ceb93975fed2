// The STP generators alone, and compared with each other. Tests in baselines/ and tests/ compare them with
// golden orders and other schedules.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <tuple>

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

// Whether the warm-up saves memory, and the number of ranks.
class Stp : public testing::TestWithParam<std::tuple<bool, int>> {
 protected:
  [[nodiscard]] Schedule make(int m) const {
    return saves_memory ? stp_schedule(p, m, schedule_stp_memory) : stp_schedule(p, m);
  }

  const bool saves_memory = std::get<0>(GetParam());
  const int p = std::get<1>(GetParam());
};

// With the warm-up that saves memory they hold two more than ZB-V.
TEST_P(Stp, AreValidForAnyNumberOfMicrobatches) {
  const int most = saves_memory ? 2 * p + 2 : p == 1 ? 4 : 4 * p - 1;
  for (const int m : sample_of(1, 65)) {
    SCOPED_TRACE("m=" + std::to_string(m));
    const Schedule schedule = make(m);
    EXPECT_EQ(schedule.name, saves_memory ? "stp-memory" : "stp");
    EXPECT_EQ(schedule.placement.name(), "v");
    EXPECT_EQ(schedule.microbatches, m);
    EXPECT_LE(std::ranges::max(peak_activations(schedule)), std::min(most, 2 * m));
  }
}

// In ZB-V all 4m a rank are exposed; in 1F1B-I, which runs multiples of p only, those of its 2m forwards.
TEST_P(Stp, ExposeFewerAllReducesThanZbVAnd1f1bI) {
  // One microbatch has no partner for a braid; p = m = 2 would be slower than 1F1B-I.
  for (const int m : sample_of(p <= 2 ? p + 1 : p, 5 * p + 1)) {
    SCOPED_TRACE("m=" + std::to_string(m));
    const Schedule schedule = make(m);
    EXPECT_LT(exposed(schedule), 4 * m * p);
    if (m % p != 0) continue;
    EXPECT_LT(alone(schedule), 2 * m * p);
    EXPECT_LT(exposed(schedule), m == p ? 3 * m * p : 2 * m * p);
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, Stp, testing::Combine(testing::Bool(), testing::Range(1, kMostRanks + 1)));

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

class StpMemory : public testing::TestWithParam<int> {
 protected:
  [[nodiscard]] Schedule make(int m) const { return stp_schedule(p, m, schedule_stp_memory); }

  const int p = GetParam();
};

// 2p + 1 between blocks and one more inside a braid, STP 3p + 1 (freed at I) to 4p − 1 (held until W).
TEST_P(StpMemory, HoldsFewerThanStpOnEveryRank) {
  for (const int m : sample_of(2 * p, 5 * p + 1)) {
    SCOPED_TRACE("m=" + std::to_string(m));
    EXPECT_THAT(peak_activations(make(m)), testing::Each(2 * p + 2));
    EXPECT_THAT(peak_activations(make(m), true), testing::Each(2 * p + 2));
    if (m < 3 * p - 1 || p == 1) continue;
    for (const bool freed_at_I : {false, true}) {
      const auto all = peak_activations(stp_schedule(p, m), freed_at_I);
      EXPECT_THAT(all, testing::Each(testing::Ge(2 * p + 2)));
      EXPECT_GE(std::ranges::max(all), freed_at_I ? 3 * p + 1 : 4 * p - 1);
    }
  }
}

// The warm-up's forwards, the first half of its I, and the I deferred in the cool-down, where a rank waits.
TEST_P(StpMemory, ExposesAsManyAllReducesForAnyNumberOfMicrobatches) {
  for (const int m : sample_of(2 * p, 5 * p + 1)) {
    const Schedule schedule = make(m);
    for (int r = 0; r < p; ++r) {
      const int ahead = r >= p - 2 ? 1 : 0, cool_down = r > 0 ? p - 1 : 0;
      EXPECT_EQ(exposed(schedule.ranks[r]), 2 * p + ahead + (p - r) / 2 + cool_down)
          << "m=" << m << " rank " << r;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, StpMemory, testing::Range(1, kMostRanks + 1),
                         testing::PrintToStringParamName());

TEST(StpMemoryOrder, IsThatOfItsSteps) {
  EXPECT_EQ(to_text(stp_schedule(2, 4, schedule_stp_memory)),
            "# schedule stp-memory, placement v\n"
            "F0.0 F0.1 F0.2 F1.0 I1.0 F1.1&W1.0 F0.3 F1.2&I1.1 W1.1 B0.0 F1.3&I1.2 "
            "B0.1 B1.3 B0.2 W1.2 B0.3\n"
            "F0.0 F1.0 F0.1 F1.1 F0.2 F1.2&B1.0 F0.3&B0.0 F1.3&I1.1 "
            "B0.1 B1.2 B0.2 B1.3 I0.3 W1.1 W0.3\n");
}

}  // namespace
}  // namespace stp
