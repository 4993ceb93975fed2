// When a rank uses the memory of what it has sent again: where the Program puts the transfer first anyway.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "stp/program/issue_order.h"
#include "stp/program/sent_before.h"
#include "stp/simulate/simulate.h"
#include "support/training.h"

namespace stp {
namespace {

using namespace testing_support;

struct Planned {
  Program program;
  std::vector<OpId> order;
  TransfersByOp sent_before;
};
Planned plan_of(const std::string& schedule, int pp, int microbatches, const Variant& variant = {}) {
  Schedule made = make_schedule(find_generator(schedule), {pp, microbatches});
  const int stages = made.placement.stages();
  Program program = execution_program(std::move(made), std::vector<int>(stages, 1), {.pp = pp}, variant);
  std::vector<OpId> order = issue_order(program).ops;
  TransfersByOp before = sent_before(program, order);
  return {std::move(program), std::move(order), std::move(before)};
}

// Whatever ops take, no op waits for the memory.
TEST(SentMemory, ReturnsToOpsThatTheTransferComesBefore) {
  std::mt19937 random(11);
  for (const char* schedule : {"gpipe", "1f1b", "1f1b-i", "zb-v", "stp", "dualpipev"})
    for (const Release release : {Release::chain, Release::block, Release::released}) {
      const Planned plan = plan_of(schedule, 4, 12, {.release = release});
      const Program& program = plan.program;
      for (int i = 0; i < 5; ++i) {
        std::vector<double> seconds(program.ops.size());
        for (double& each : seconds) each = static_cast<double>(random() % 100);
        const Timeline timeline = simulate(program, seconds);
        std::set<OpId> returned;
        for (const auto& [op, transfers] : plan.sent_before)
          for (const OpId transfer : transfers) {
            EXPECT_EQ(program.stream_of(transfer).rank, program.stream_of(op).rank);
            EXPECT_LE(timeline.end[transfer], timeline.start[op]) << describe(program, op);
            EXPECT_TRUE(returned.insert(transfer).second) << describe(program, transfer);
          }
      }
    }
}

// How many transfers of a rank have been issued whose memory has not returned, at the most.
size_t most_outstanding(const Planned& plan) {
  std::vector<size_t> outstanding(plan.program.schedule.pp());
  size_t most = 0;
  for (const OpId op : plan.order) {
    size_t& here = outstanding[plan.program.stream_of(op).rank];
    if (const auto found = plan.sent_before.find(op); found != plan.sent_before.end())
      here -= found->second.size();
    if (plan.program.ops[op].kind == OpKind::transfer) most = std::max(most, ++here);
  }
  return most;
}

TEST(SentMemory, IsNotMoreForMoreMicrobatches) {
  for (const char* schedule : {"1f1b", "1f1b-i", "zb-v", "stp", "dualpipev"})
    EXPECT_EQ(most_outstanding(plan_of(schedule, 4, 24)), most_outstanding(plan_of(schedule, 4, 72)))
        << schedule;
}

}  // namespace
}  // namespace stp
