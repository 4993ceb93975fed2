// Lowering carries every value: a walk through random programs that follows each tensor from unit to unit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "stp/program/lower.h"
#include "support/programs.h"
#include "support/schedules.h"

namespace stp {
namespace {

using testing::IsEmpty;

// Walks all ranks' lists and tracks every value: an op's input is present and is what the model's next unit
// needs, and no value is left at the end.
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
          if (testing::Test::HasFatalFailure()) return;
          done_[next[rank]] = true;
        }
    }
    for (size_t rank = 0; rank < next.size(); ++rank)
      ASSERT_EQ(next[rank], program_.rank_begin[rank + 1]) << describe(program_, next[rank]) << " is stuck";
    EXPECT_THAT(held_, IsEmpty());
    const int layers = std::accumulate(program_.layers_per_stage.begin(), program_.layers_per_stage.end(), 0);
    const int of_encoder = program_.vision_layers > 0 ? 2 * program_.vision_layers + 2 : 0;
    EXPECT_EQ(units_, program_.schedule.microbatches * 2 * (2 * layers + 2 + of_encoder));
  }

 private:
  // What a value is: the output activation of a unit, or the gradient of a unit's input, units counted
  // through the model; and what part of it a rank holds: a summand, its share of the rows, or all.
  enum class Held { summand, share, all };
  struct Value {
    int unit;
    Held held;
    bool operator==(const Value&) const = default;
  };

  bool ready(OpId op) const {
    const auto needed = program_.dependencies(op);
    return std::all_of(needed.begin(), needed.end(), [&](OpId each) { return done_[each]; });
  }
  // attn of the first layer is 1, the embedding 0, the head the last; the merger is −1, patches the first.
  int unit_of(const Op& op, int stage) const {
    int layer = op.layer;
    for (int before = 0; before < stage; ++before) layer += program_.layers_per_stage[before];
    if (op.unit == Unit::embedding) return 0;
    if (op.unit == Unit::merger) return -1;
    if (op.unit == Unit::patches) return -2 * program_.vision_layers - 2;
    if (is_vision(op.unit)) return 2 * (op.layer - program_.vision_layers) - (is_attention(op.unit) ? 1 : 0);
    if (op.unit == Unit::head)
      return 1 + 2 * std::accumulate(program_.layers_per_stage.begin(), program_.layers_per_stage.end(), 0);
    return 2 * layer + (op.unit == Unit::attn ? 1 : 2);
  }

  void carry(int rank, OpId id) {
    const Op& op = program_.ops[id];
    const std::string text = describe(program_, id);
    const auto take = [&](ValueId value) {
      const auto found = held_.find({rank, value});
      EXPECT_NE(found, held_.end()) << text << " takes a value that is not there";
      if (found == held_.end()) return Value{-1, Held::summand};
      const Value taken = found->second;
      held_.erase(found);
      return taken;
    };
    const auto leave = [&](int on, ValueId value, Value what) {
      EXPECT_TRUE(held_.emplace(std::pair(on, value), what).second) << text << " leaves a value twice";
    };
    if (op.kind == OpKind::transfer) {
      for (const ValueId value : {op.input, op.output})
        if (value != kNoValue) leave(program_.stream_of(id).peer, value, take(value));
      return;
    }
    // In I the first exchange of rows has the unit's input.
    if (op.kind == OpKind::row_exchange && op.unit_pass == UnitPass::I && op.step == 1) {
      EXPECT_EQ(take(op.input), (Value{unit_of(op, program_.stage_of(id)) + 1, Held::share})) << text;
      return;
    }
    if (op.kind != OpKind::compute && op.kind != OpKind::weight_gradients && !is_collective(op.kind)) {
      EXPECT_TRUE(!is_exchange(op.kind) || (op.input == kNoValue && op.output == kNoValue)) << text;
      return;
    }
    const bool weights = op.kind == OpKind::weight_gradients || op.unit_pass == UnitPass::W_early ||
                         op.unit_pass == UnitPass::W_late;
    if (weights && has_pass(op.unit, UnitPass::I)) return;
    // Behind a vision encoder B's embedding.W hands the gradient of images on to the merger, whose I else
    // gets all and keeps it for W.
    const bool vision = program_.vision_layers > 0;
    if (vision && weights && op.unit == Unit::embedding) {
      EXPECT_EQ(op.input == kNoValue, op.pass == Pass::W) << text;
      EXPECT_EQ(op.output == kNoValue, op.pass == Pass::W) << text;
      ++units_;
      if (op.pass == Pass::W) return;
      EXPECT_EQ(take(op.input), (Value{1, Held::all})) << text;
      return leave(rank, op.output, {0, Held::all});
    }
    // Between its parts, a unit's tensors are its own.
    const bool overlaps = program_.division().overlaps();
    const int last = program_.division().steps(op.unit, op.unit_pass, op.part) - 1;
    const bool pieces = overlaps && op.part == UnitPart::after && op.unit_pass == UnitPass::F;
    if (op.part == UnitPart::core || (op.part == UnitPart::before && overlaps) ||
        (pieces && (op.kind == OpKind::compute || op.step < last))) {
      EXPECT_TRUE(op.input == kNoValue && op.output == kNoValue) << text;
      if (pieces && op.kind == OpKind::compute && op.step == last && !op.recomputed()) ++units_;
      return;
    }
    const int unit = unit_of(op, program_.stage_of(id));
    const bool forward = op.unit_pass == UnitPass::F;
    const bool skips = op.unit == Unit::merger && op.pass == Pass::I;
    const int before = forward ? unit - 1 : unit + (skips ? 2 : 1);
    if (op.kind == OpKind::all_reduce || op.kind == OpKind::reduce_scatter) {
      if (!pieces) {
        EXPECT_EQ(take(op.input), (Value{unit, Held::summand})) << text;
      }
      const Held held = op.kind == OpKind::all_reduce ? Held::all : Held::share;
      EXPECT_EQ(op.output == kNoValue, op.recomputed() && op.unit == Unit::mlp) << text;
      if (op.output != kNoValue) leave(rank, op.output, {unit, held});
      return;
    }
    // The first unit and, backward, the head have no input; nor does a recomputed layer.
    const Unit first = vision ? Unit::patches : Unit::embedding;
    const bool begins = (op.unit == first && forward) || (op.unit == Unit::head && !forward) ||
                        (op.recomputed() && op.unit == Unit::attn && op.kind != OpKind::compute) ||
                        (op.recomputed() && op.unit == Unit::attn &&
                         (!program_.strategy.sequence_parallel || op.part == UnitPart::norm));
    EXPECT_EQ(op.input == kNoValue, begins || op.part == UnitPart::after) << text;
    const bool gathers = op.kind == OpKind::all_gather;
    if (op.part == UnitPart::before || op.part == UnitPart::norm) {
      EXPECT_EQ(op.output, kNoValue) << text;
      if (!begins) {
        const Held held = op.part == UnitPart::norm ? Held::share : Held::all;
        EXPECT_EQ(take(op.input), (Value{before, held})) << text;
      }
      return;
    }
    if (op.part == UnitPart::after) {
      if (!op.recomputed()) ++units_;
      return leave(rank, op.output, {unit, Held::summand});
    }
    if (!begins) {
      EXPECT_EQ(take(op.input), (Value{before, gathers ? Held::share : Held::all})) << text;
    }
    if (!gathers && !op.recomputed()) ++units_;
    const bool ends = op.unit == first ? !forward : op.unit == Unit::head && forward;
    EXPECT_EQ(op.output == kNoValue, ends && !gathers) << text;
    if (op.output == kNoValue) return;
    if (gathers) return leave(rank, op.output, {before, Held::all});
    // The head's own collectives are inside it; patches have none.
    const Held of_head = program_.strategy.sequence_parallel ? Held::share : Held::all;
    const bool reduced = op.unit != Unit::head && op.unit != Unit::patches;
    leave(rank, op.output, {unit, reduced ? Held::summand : of_head});
  }

  const Program& program_;
  std::vector<bool> done_;
  std::map<std::pair<int, ValueId>, Value> held_;
  int units_ = 0;  // computed, without recomputed ones
};

TEST(Lower, CarriesEveryValueFromUnitToUnit) {
  std::mt19937 random(510);
  for (int draw = 0; draw < 600; ++draw) {
    const int p = 1 + static_cast<int>(random() % 4), v = 1 + static_cast<int>(random() % 3);
    const Placement placement = random() % 3 == 0 ? Placement::v(p) : Placement::loop(p, v);
    const Schedule schedule = random_schedule(random, placement, 1 + static_cast<int>(random() % 5));
    const std::vector<int> layers = random_layers(random, placement.stages());
    const Lowering lowering{.release = kReleases[random() % 3],
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
                                  {.release = kReleases[draw % 3],
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
