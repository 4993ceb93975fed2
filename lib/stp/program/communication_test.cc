#include "stp/program/communication.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <stdexcept>

#include "stp/program/lower.h"
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
  EXPECT_THROW(receives_ahead(program), std::runtime_error);
}

}  // namespace
}  // namespace stp
