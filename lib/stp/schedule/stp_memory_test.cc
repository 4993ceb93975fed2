// STP with a warm-up that saves memory, alone and compared with STP. The tests of its bubbles are in
// baselines/.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "support/effort.h"
#include "support/schedules.h"

namespace stp {
namespace {

class StpMemory : public testing::TestWithParam<int> {
 protected:
  [[nodiscard]] Schedule make(int m) const { return stp_schedule(p, m, schedule_stp_memory); }

  const int p = GetParam();
};

TEST_P(StpMemory, IsValidAndHoldsTwoMoreThanZbVForAnyNumberOfMicrobatches) {
  for (const int m : sample_of(1, 65)) {
    SCOPED_TRACE("m=" + std::to_string(m));
    const Schedule schedule = make(m);
    EXPECT_EQ(schedule.name, "stp-memory");
    EXPECT_EQ(schedule.placement.name(), "v");
    EXPECT_EQ(schedule.microbatches, m);
    EXPECT_LE(std::ranges::max(peak_activations(schedule)), std::min(2 * p + 2, 2 * m));
  }
}

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

// In ZB-V all 4m a rank are exposed; in 1F1B-I, which runs multiples of p only, those of its 2m forwards.
TEST_P(StpMemory, ExposesFewerAllReducesThanZbVAnd1f1bI) {
  for (const int m : sample_of(p <= 2 ? p + 1 : p, 5 * p + 1)) {
    const Schedule schedule = make(m);
    const int count = on_all_ranks(schedule, [](const auto& blocks) { return exposed(blocks); });
    EXPECT_LT(count, 4 * m * p) << "m=" << m;
    if (m % p == 0 && m > p) {
      EXPECT_LT(count, 2 * m * p) << "m=" << m;
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
