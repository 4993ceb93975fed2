#include "stp/program/issue_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <stdexcept>

#include "stp/program/lower.h"
#include "support/programs.h"
#include "support/refusal.h"

namespace stp {

namespace {

using testing::HasSubstr;

Program stp_program(int p, int m, Release release) {
  return lower(stp_schedule(p, m), std::vector<int>(2 * p, 2), {.release = release});
}

// Every op once, after the op before it in its rank's list and after its dependencies; and no link ever has
// more tensors sent and not consumed than allowed.
void expect_issuable(const Program& program) {
  const IssueOrder order = issue_order(program);
  ASSERT_EQ(order.ops.size(), program.ops.size());
  std::vector<bool> issued(program.ops.size(), false), taken(program.ops.size(), false);
  std::vector<int> ahead(program.streams.size(), 0);
  std::vector<OpId> next(program.rank_begin.begin(), program.rank_begin.end() - 1);
  for (const OpId op : order.ops) {
    const ProgramStream& stream = program.stream_of(op);
    ASSERT_EQ(next[stream.rank]++, op) << describe(program, op);
    for (const OpId needed : program.dependencies(op)) {
      ASSERT_TRUE(issued[needed]) << describe(program, op) << " before " << describe(program, needed);
      const bool received =
          program.stream_of(needed).kind == StreamKind::p2p && program.stream_of(needed).peer == stream.rank;
      if (!received || taken[needed]) continue;
      taken[needed] = true;
      --ahead[program.on_stream[needed]];
    }
    issued[op] = true;
    if (stream.kind == StreamKind::p2p) {
      ASSERT_LE(++ahead[program.on_stream[op]], order.receives_ahead) << describe(program, op);
    }
  }
}

TEST(IssueOrder, IsTopologicalInEveryListAndKeepsToTheReceivesAhead) {
  for (const Release release : kReleases) expect_issuable(stp_program(3, 12, release));
  std::mt19937 random(77);
  for (int draw = 0; draw < 200; ++draw) {
    const int p = 1 + static_cast<int>(random() % 4), v = 1 + static_cast<int>(random() % 3);
    const Placement placement = random() % 3 == 0 ? Placement::v(p) : Placement::loop(p, v);
    const std::vector<int> layers = random_layers(random, placement.stages());
    const auto release = kReleases[random() % std::size(kReleases)];
    expect_issuable(
        lower(random_schedule(random, placement, 1 + static_cast<int>(random() % 6)), layers,
              {.release = release, .strategy = {.sequence_parallel = random() % 2 == 0}, .embedding = true}));
  }
}

int receives_ahead(const Program& program) { return issue_order(program).receives_ahead; }

TEST(ReceivesAhead, OneIsEnoughWhereTensorsAreConsumedInTheirOrder) {
  const Schedule schedule =
      by_hand(Placement::loop(2, 1), 2, {{"F0.0", "F0.1", "B0.0", "B0.1"}, {"F0.0", "B0.0", "F0.1", "B0.1"}});
  EXPECT_EQ(receives_ahead(lower(schedule, {1, 1}, {})), 1);
}

// Rank 1 consumes microbatch 2 first, which rank 0 sends third: two more receives must be posted before it.
TEST(ReceivesAhead, CountsTensorsThatWaitForALaterOne) {
  const Schedule schedule = by_hand(
      Placement::loop(2, 1), 3,
      {{"F0.0", "F0.1", "F0.2", "B0.2", "B0.0", "B0.1"}, {"F0.2", "B0.2", "F0.0", "B0.0", "F0.1", "B0.1"}});
  EXPECT_EQ(receives_ahead(lower(schedule, {1, 1}, {})), 3);
}

TEST(ReceivesAhead, AtomicBraidsOfStpNeedTwo) {
  EXPECT_EQ(receives_ahead(stp_program(4, 24, Release::block)), 2);
  // A sender that waits for its sends does not consume them.
  EXPECT_EQ(receives_ahead(stp_program(4, 24, Release::released)), 2);
}

TEST(IssueOrder, AProgramWithACycleIsRefusedAndTheOpNamed) {
  Program program =
      lower(by_hand(Placement::loop(2, 1), 1, {{"F0.0", "B0.0"}, {"F0.0", "B0.0"}}), {1, 1}, {});
  // Make the very first op wait for the last of the other rank.
  ASSERT_TRUE(program.dependencies(0).empty());
  program.depends.insert(program.depends.begin(), program.rank_begin[2] - 1);
  for (size_t op = 1; op < program.depends_begin.size(); ++op) ++program.depends_begin[op];
  EXPECT_THAT(error_of<std::runtime_error>([&] { issue_order(program); }),
              HasSubstr("deadlock: rank 0, compute, attn.F of F0.0"));
}

}  // namespace
}  // namespace stp
