// Lowering carries every value: a walk through random programs that follows each tensor from unit to unit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "stp/program/lower.h"
#include "support/programs.h"
#include "support/schedules.h"

namespace stp {
namespace {

using testing::IsEmpty;

// Walks all ranks' lists: an op's input is where it runs, taken once, and no value is left at the end. That
// it is the right one is what training shows (tests/runtime).
class ValueFlow {
 public:
  explicit ValueFlow(const Program& program) : program_(program), done_(program.ops.size(), false) {}

  void check() {
    std::vector<OpId> next(program_.rank_begin.begin(), program_.rank_begin.end() - 1);
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t rank = 0; rank < next.size(); ++rank)
        for (; next[rank] < program_.rank_begin[rank + 1] && ready(next[rank]); ++next[rank], moved = true) {
          carry(static_cast<int>(rank), next[rank]);
          done_[next[rank]] = true;
        }
    }
    for (size_t rank = 0; rank < next.size(); ++rank)
      EXPECT_EQ(next[rank], program_.rank_begin[rank + 1]) << describe(program_, next[rank]) << " is stuck";
    EXPECT_THAT(held_, IsEmpty());
  }

 private:
  bool ready(OpId op) const {
    const auto needed = program_.dependencies(op);
    return std::all_of(needed.begin(), needed.end(), [&](OpId each) { return done_[each]; });
  }
  void take(int rank, ValueId value, OpId op) {
    EXPECT_TRUE(held_.erase({rank, value})) << describe(program_, op) << " takes a value that is not there";
  }
  void leave(int rank, ValueId value, OpId op) {
    EXPECT_TRUE(held_.emplace(rank, value).second) << describe(program_, op) << " leaves a value twice";
  }
  void carry(int rank, OpId id) {
    const Op& op = program_.ops[id];
    if (op.kind == OpKind::transfer) {
      for (const ValueId value : {op.input, op.output})
        if (value != kNoValue) {
          take(rank, value, id);
          leave(program_.stream_of(id).peer, value, id);
        }
      return;
    }
    if (op.input != kNoValue) take(rank, op.input, id);
    if (op.output != kNoValue) leave(rank, op.output, id);
  }

  const Program& program_;
  std::vector<bool> done_;
  std::set<std::pair<int, ValueId>> held_;
};

TEST(Lower, CarriesEveryValueFromUnitToUnit) {
  std::mt19937 random(510);
  for (int draw = 0; draw < 600; ++draw) {
    const int p = 1 + static_cast<int>(random() % 4), v = 1 + static_cast<int>(random() % 3);
    const Placement placement = random() % 3 == 0 ? Placement::v(p) : Placement::loop(p, v);
    const Schedule schedule = random_schedule(random, placement, 1 + static_cast<int>(random() % 5));
    const std::vector<int> layers = random_layers(random, placement.stages());
    const Lowering lowering{.release = kReleases[random() % std::size(kReleases)],
                            .backward = random() % 2 ? BackwardOrder::suite : BackwardOrder::megatron,
                            .optimizer = random() % 2 == 0,
                            .strategy = {.cp = random() % 2 == 0 ? 1 : 2 + static_cast<int>(random() % 3),
                                         .cp_method = static_cast<CpMethod>(draw % 2),
                                         .sequence_parallel = random() % 2 == 0,
                                         .recompute = kRecomputes[random() % std::size(kRecomputes)].choice,
                                         .zero = random() % 2 == 0},
                            .data_parallel = random() % 2 == 0,
                            .embedding = true};
    Lowering overlapped = lowering;
    if (lowering.strategy.sequence_parallel && random() % 2 == 0) {
      overlapped.strategy.tp_overlap = TpOverlap::megatron;
      overlapped.strategy.tp = 1 + static_cast<int>(random() % 4);
    }
    const Program program = lower(schedule, layers, overlapped);
    ValueFlow(program).check();
    ASSERT_FALSE(testing::Test::HasFailure())
        << "draw " << draw << ", sequence parallel " << lowering.strategy.sequence_parallel << ", layers "
        << testing::PrintToString(layers) << ":\n"
        << to_text(schedule);
  }
}

TEST(Lower, CarriesEveryValueThroughAVisionEncoder) {
  std::mt19937 random(513);
  for (int draw = 0; draw < 200; ++draw) {
    const int p = 1 + static_cast<int>(random() % 4);
    const Schedule schedule = random_schedule(random, draw % 2 ? Placement::v(p) : Placement::loop(p, 2),
                                              1 + static_cast<int>(random() % 5));
    std::vector<int> layers = random_layers(random, 2 * p);
    layers[0] = 0;
    const Program program = lower(schedule, layers,
                                  {.release = kReleases[draw % std::size(kReleases)],
                                   .backward = draw % 5 ? BackwardOrder::suite : BackwardOrder::megatron,
                                   .optimizer = draw % 4 == 0,
                                   .embedding = true,
                                   .vision_layers = 1 + draw % 3});
    ValueFlow(program).check();
    ASSERT_FALSE(testing::Test::HasFailure())
        << "draw " << draw << ", layers " << testing::PrintToString(layers) << ":\n"
        << to_text(schedule);
  }
}

}  // namespace
}  // namespace stp
