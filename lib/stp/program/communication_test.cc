#include "stp/program/communication.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <random>
#include <stdexcept>
#include <utility>

#include "stp/program/lower.h"
#include "stp/program/topological_order.h"
#include "support/schedules.h"

namespace stp {

namespace {

Program stp_program(int p, int m, Release release) {
  return lower(stp_schedule(p, m), std::vector<int>(2 * p, 2), {.release = release});
}

TEST(CommunicationOrder, HoldsEveryCommunicationOpOnce) {
  const Program program = stp_program(4, 16, Release::chain);
  std::vector<OpId> order = communication_order(program), expected;
  for (OpId op = 0; op < program.ops.size(); ++op)
    if (program.stream_of(op).kind != StreamKind::compute) expected.push_back(op);
  EXPECT_THAT(order, testing::UnorderedElementsAreArray(expected));
}

// Checked without levels: give every communication op its number, push the largest number seen down the
// program's edges in the order of a plain graph search, and no op may come before one that it waits for.
TEST(CommunicationOrder, IsALinearExtensionOfTheProgram) {
  for (const Release release : {Release::chain, Release::block, Release::released}) {
    const Program program = stp_program(3, 12, release);
    std::map<OpId, size_t> number;
    for (const OpId op : communication_order(program)) number.emplace(op, number.size());
    std::vector<OpId> before(program.ops.size(), ~OpId{0}), last(program.streams.size(), ~OpId{0});
    for (OpId op = 0; op < program.ops.size(); ++op) {
      before[op] = last[program.ops[op].stream];
      last[program.ops[op].stream] = op;
    }
    std::vector<int> largest(program.ops.size(),
                             -2);  // number of the latest communication op at or before each op
    const std::function<int(OpId)> visit = [&](OpId op) {
      if (largest[op] > -2) return largest[op];
      int earlier = before[op] == ~OpId{0} ? -1 : visit(before[op]);
      for (const OpId needed : program.dependencies(op)) earlier = std::max(earlier, visit(needed));
      const auto own = number.find(op);
      if (own != number.end()) {
        EXPECT_LT(earlier, static_cast<int>(own->second)) << describe(program, op);
        earlier = static_cast<int>(own->second);
      }
      return largest[op] = earlier;
    };
    for (OpId op = 0; op < program.ops.size(); ++op) visit(op);
  }
}

Program with_options(const Schedule& schedule, Release release) {
  return lower(schedule, std::vector<int>(schedule.placement.stages(), 2),
               {.release = release, .optimizer = true, .data_parallel = true, .sequence_parallel = true});
}

TEST(TopologicalOrder, HasEveryOpBehindAllThatItWaitsFor) {
  std::mt19937 random(3);
  for (const Release release : {Release::chain, Release::block, Release::released}) {
    for (const Schedule& schedule :
         {stp_schedule(3, 12), random_schedule(random, Placement::wave(2, 3), 4)}) {
      const Program program = with_options(schedule, release);
      const std::vector<OpId> order = topological_order(program);
      ASSERT_EQ(order.size(), program.ops.size());
      std::vector<bool> issued(program.ops.size(), false);
      std::vector<OpId> last(program.streams.size(), kNoOp), before(program.ops.size(), kNoOp);
      for (OpId op = 0; op < program.ops.size(); ++op)
        before[op] = std::exchange(last[program.ops[op].stream], op);
      for (const OpId op : order) {
        EXPECT_FALSE(issued[op]) << describe(program, op);
        EXPECT_TRUE(before[op] == kNoOp || issued[before[op]]) << describe(program, op);
        for (const OpId needed : program.dependencies(op))
          EXPECT_TRUE(issued[needed]) << describe(program, op);
        issued[op] = true;
      }
    }
  }
}

// Issued in this order, ops of the same level stand by rank: with a second each and no other limit, they
// would run in the same second.
TEST(TopologicalOrder, GoesByLevelThenByRank) {
  const Program program = with_options(stp_schedule(2, 6), Release::chain);
  const std::vector<uint32_t> level = op_levels(program);
  EXPECT_TRUE(std::ranges::is_sorted(topological_order(program), {},
                                     [&](OpId op) { return std::pair(level[op], op); }));
}

TEST(OpLevels, GrowByOneAlongTheLongestWay) {
  const Program program = lower(by_hand(Placement::loop(1, 1), 1, {{"F0.0", "B0.0"}}), {1}, {});
  const std::vector<uint32_t> level = op_levels(program);
  for (OpId op = 0; op < program.ops.size(); ++op) {
    uint32_t deepest = 0;
    for (OpId other = 0; other < op; ++other)
      if (program.ops[other].stream == program.ops[op].stream) deepest = level[other];
    for (const OpId needed : program.dependencies(op)) deepest = std::max(deepest, level[needed]);
    EXPECT_EQ(level[op], deepest + 1) << describe(program, op);
  }
  std::vector<OpId> also(program.ops.size(), kNoOp);
  also[0] = 1;  // which waits for op 0
  EXPECT_THAT(op_levels(program, also), testing::Each(0U));
}

TEST(ReceivesAhead, OneIsEnoughWhereTensorsAreTakenUpAsTheyCome) {
  const Schedule schedule =
      by_hand(Placement::loop(2, 1), 2, {{"F0.0", "F0.1", "B0.0", "B0.1"}, {"F0.0", "B0.0", "F0.1", "B0.1"}});
  EXPECT_EQ(receives_ahead(lower(schedule, {1, 1}, {})), 1);
}

// Rank 1 takes up microbatch 2 first, which rank 0 sends third: two more receives must stand open before it.
TEST(ReceivesAhead, CountsTensorsThatWaitForALaterOne) {
  const Schedule schedule = by_hand(
      Placement::loop(2, 1), 3,
      {{"F0.0", "F0.1", "F0.2", "B0.2", "B0.0", "B0.1"}, {"F0.2", "B0.2", "F0.0", "B0.0", "F0.1", "B0.1"}});
  EXPECT_EQ(receives_ahead(lower(schedule, {1, 1}, {})), 3);
}

TEST(ReceivesAhead, AtomicBraidsOfStpNeedTwo) {
  EXPECT_EQ(receives_ahead(stp_program(4, 24, Release::chain)), 1);
  EXPECT_EQ(receives_ahead(stp_program(4, 24, Release::block)), 2);
  // That the sender waits for its sends is no take-up of what it sent.
  EXPECT_EQ(receives_ahead(stp_program(4, 24, Release::released)), 2);
}

TEST(ReceivesAhead, AProgramWithACircleIsRefusedByName) {
  Program program =
      lower(by_hand(Placement::loop(2, 1), 1, {{"F0.0", "B0.0"}, {"F0.0", "B0.0"}}), {1, 1}, {});
  // Make the very first op wait for the last of the other rank.
  ASSERT_TRUE(program.dependencies(0).empty());
  program.depends.insert(program.depends.begin(), program.rank_begin[2] - 1);
  for (size_t op = 1; op < program.depends_begin.size(); ++op) ++program.depends_begin[op];
  EXPECT_THROW(communication_order(program), std::runtime_error);
  EXPECT_THROW(topological_order(program), std::runtime_error);
  EXPECT_THROW(receives_ahead(program), std::runtime_error);
}

}  // namespace
}  // namespace stp
