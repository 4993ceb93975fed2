// Searched orders: valid, within the limit, timed as said, the same for the same seed; and the best where it
// is known.
#include "stp/schedule/local_search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "stp/schedule/timing.h"
#include "support/effort.h"
#include "support/schedules.h"

namespace stp {
namespace {

std::function<double(const Schedule&)> timer(const PassCosts& costs) {
  return [costs](const Schedule& schedule) {
    double last = 0;
    for (const auto& rank : time_blocks(schedule, costs)) last = std::max(last, rank.back().end);
    return last;
  };
}

TEST(LocalSearch, KeepsOrdersValidAndWithinTheLimit) {
  std::mt19937 random(1301);
  std::uniform_real_distribution<double> cost(0.2, 2);
  int better = 0, cases = 0;
  for (int draw = 0; draw < 200; draw += kStride, ++cases) {
    const int p = 1 + static_cast<int>(random() % 4), m = 1 + static_cast<int>(random() % 8);
    const Placement placement =
        random() % 2 ? Placement::v(p) : Placement::loop(p, 1 + static_cast<int>(random() % 2));
    const Schedule start = random_schedule(random, placement, m);
    const PassCosts costs{cost(random), cost(random), cost(random), cost(random) / 4};
    SearchRequest request{.seed = random(),
                          .moves = draw % 2 == 0 ? 1200 : static_cast<int64_t>(random() % 1000),
                          .freed_at_I = random() % 4 == 0,
                          .step_seconds = timer(costs)};
    request.activation_limit =
        std::ranges::max(peak_activations(start, request.freed_at_I)) + static_cast<int>(random() % 2);
    const double start_s = request.step_seconds(start);
    const SearchResult found = local_search(start, start_s, request);
    EXPECT_NO_THROW(validate(found.schedule)) << "draw " << draw;
    EXPECT_LE(std::ranges::max(peak_activations(found.schedule, request.freed_at_I)),
              request.activation_limit);
    EXPECT_LE(found.step_s, start_s);
    EXPECT_DOUBLE_EQ(found.step_s, request.step_seconds(found.schedule));
    EXPECT_LE(found.moves, request.moves);
    const SearchResult again = local_search(start, start_s, request);
    EXPECT_EQ(to_text(again.schedule), to_text(found.schedule));
    better += found.step_s < start_s;
  }
  EXPECT_GT(better, cases / 2);
}

// The last rank waits for the first microbatch alone: no order is faster (Zero Bubble, arXiv 2401.10241).
TEST(LocalSearch, FindsOrdersWithoutABubbleFrom1f1b) {
  for (const auto& [p, m] : {std::pair{2, 4}, {3, 6}}) {
    const Schedule start = plain_1f1b(p, m);
    const SearchResult found = local_search(start, 3.0 * (m + p - 1),
                                            {.moves = 40000,
                                             .activation_limit = 2 * p,
                                             .enough_s = 3.0 * m + p - 1,
                                             .step_seconds = timer({1, 1, 1, 0})});
    EXPECT_EQ(found.step_s, 3.0 * m + p - 1);
    EXPECT_EQ(found.end, SearchResult::End::enough);
  }
}

TEST(LocalSearch, SaysThatItFoundNothing) {
  const Schedule start = plain_1f1b(1, 5);  // one rank without transfers always computes
  const SearchResult found =
      local_search(start, 15, {.moves = 4000, .activation_limit = 5, .step_seconds = timer({})});
  EXPECT_EQ(found.end, SearchResult::End::nothing_found);
  EXPECT_EQ(found.step_s, 15);
  EXPECT_EQ(to_text(found.schedule), to_text(start));
}

TEST(LocalSearch, StopsWhenToldWithTheBestSoFar) {
  const Schedule start = plain_1f1b(3, 6);
  SearchRequest request{.moves = 40000, .activation_limit = 6, .step_seconds = timer({1, 1, 1, 0})};
  request.go_on = [](int64_t moves, double) { return moves < 500; };
  const SearchResult found = local_search(start, 24, request);
  EXPECT_EQ(found.end, SearchResult::End::stopped);
  EXPECT_EQ(found.moves, 500);
  EXPECT_NO_THROW(validate(found.schedule));
  EXPECT_EQ(found.step_s, request.step_seconds(found.schedule));
}

}  // namespace
}  // namespace stp
