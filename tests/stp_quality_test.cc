// STP against the schedules that it is compared with, where it has few microbatches: p ≤ m < 3p − 1, unit
// costs. One layer a virtual stage, F = I = W = 1 a chunk, and all-reduces of 0.25 a chunk and direction, or
// of 0.25 each.
#include <gtest/gtest.h>

#include <algorithm>

#include "baselines/registry.h"
#include "support/effort.h"
#include "support/unit_costs.h"

namespace stp {
namespace {

constexpr double kEpsilon = 1e-9;
constexpr double kAllReduces[] = {0.125, 0.25};  // two per chunk and direction

Schedule make(const char* name, int p, int m, const PassCosts& costs = {}) {
  return make_schedule(find_generator(name), {.pp = p, .microbatches = m, .costs = costs});
}

// ZB-V with default costs or with the passes' costs, whichever is faster.
double zb_v_time(int p, int m, double all_reduce) {
  const PassCosts costs = pass_costs(unit_costs(all_reduce), 1);
  return std::min(step_time(make("zb-v", p, m), all_reduce),
                  step_time(make("zb-v", p, m, costs), all_reduce));
}

class StpQuality : public testing::TestWithParam<int> {
 protected:
  const int p = GetParam();
};

TEST_P(StpQuality, IsNoSlowerThanZbVFromAFewMoreMicrobatchesThanRanks) {
  // Nearer to p the first backwards begin after all forwards, and braids cost time.
  for (const int m : sample_of(p + 1 + p / 8, 3 * p - 1))
    for (const double all_reduce : kAllReduces)
      EXPECT_LE(step_time(make("stp", p, m), all_reduce), zb_v_time(p, m, all_reduce) + kEpsilon)
          << "m=" << m;
}

TEST_P(StpQuality, IsNearZbVWithFewerMicrobatches) {
  for (const int m : sample_of(1, p + 1 + p / 8))
    for (const double all_reduce : kAllReduces)
      EXPECT_LE(step_time(make("stp", p, m), all_reduce), 1.12 * zb_v_time(p, m, all_reduce)) << "m=" << m;
}

TEST_P(StpQuality, IsNoSlowerThan1f1bI) {
  for (int m = p; m < 3 * p - 1; m += p)
    for (const double all_reduce : kAllReduces)
      EXPECT_LE(step_time(make("stp", p, m), all_reduce),
                step_time(make("1f1b-i", p, m), all_reduce) + kEpsilon)
          << "m=" << m;
}

TEST_P(StpQuality, IsNoSlowerThanZbVWithAtomicBlocksFromTwiceAsManyMicrobatches) {
  for (const int m : sample_of(2 * p, 3 * p - 1))
    for (const double all_reduce : kAllReduces)
      EXPECT_LE(step_time(make("stp", p, m), all_reduce, Release::block),
                zb_v_time(p, m, all_reduce) + kEpsilon)
          << "m=" << m;
}

TEST_P(StpQuality, WithLittleMemoryIsNoSlowerThanZbVFromTwiceAsManyMicrobatches) {
  for (const int m : sample_of(2 * p, 5 * p + 1))
    for (const double all_reduce : kAllReduces)
      EXPECT_LE(step_time(make("stp-memory", p, m), all_reduce), zb_v_time(p, m, all_reduce) + kEpsilon)
          << "m=" << m;
}

INSTANTIATE_TEST_SUITE_P(Ranks, StpQuality, testing::Range(2, 13), testing::PrintToStringParamName());

}  // namespace
}  // namespace stp
