// Segments, braids and lowering, against docs/architecture.md, section 5, implemented again in this file.
#include "stp/program/program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <random>
#include <set>

#include "stp/base/error.h"
#include "stp/program/braid.h"
#include "stp/program/issue_order.h"
#include "stp/program/lower.h"
#include "stp/program/units.h"
#include "stp/schedule/generator.h"
#include "stp/schedule/validate.h"
#include "support/refusal.h"
#include "support/schedules.h"

namespace stp {

namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

using Texts = std::vector<std::string>;

// ---- programs as text ----

std::string op_text(const Program& program, OpId id) {
  const Op& op = program.ops[id];
  const std::string action = to_string(Action{op.pass, op.chunk, op.microbatch}) + ": ";
  const std::string at = op.unit == Unit::head || op.unit == Unit::embedding ? "" : std::to_string(op.layer);
  switch (op.kind) {
    case OpKind::compute:
      return action + to_string(op.unit, op.unit_pass) + suffix(op.part) + at +
             (program.division.steps(op.unit, op.unit_pass, op.part) > 1 ? ", step " + std::to_string(op.step)
                                                                         : "");
    case OpKind::kv_exchange:
      return action + "KV " + to_string(op.unit, op.unit_pass) + at + ", " + std::to_string(op.step);
    case OpKind::kv_gradient_exchange:
      return action + "dKV " + to_string(op.unit, op.unit_pass) + at + ", " + std::to_string(op.step);
    case OpKind::all_to_all:
      return action + "A2A " + to_string(op.unit, op.unit_pass) + at + ", " + std::to_string(op.step);
    case OpKind::row_exchange:
      return action + "rows " + to_string(op.unit, op.unit_pass) + at + ", " + std::to_string(op.step);
    case OpKind::weight_gradients:
      return action + to_string(op.unit) + ".W both" + at;
    case OpKind::all_reduce:
      return action + "AR " + to_string(op.unit, op.unit_pass) + at;
    case OpKind::reduce_scatter:
      return action + "RS " + to_string(op.unit, op.unit_pass) + at +
             (op.part == UnitPart::after ? ", piece " + std::to_string(op.step) : "");
    case OpKind::all_gather:
      return action + "AG " + to_string(op.unit, op.unit_pass) + at;
    case OpKind::transfer:
      return action + "send " + std::to_string(op.tensors()) + " to " +
             std::to_string(program.stream_of(id).peer);
    case OpKind::gradient_reduce:
      return "reduce chunk " + std::to_string(op.chunk);
    case OpKind::gradient_scatter:
      return "scatter chunk " + std::to_string(op.chunk);
    case OpKind::weight_gather:
      return "gather chunk " + std::to_string(op.chunk);
    case OpKind::embedding_reduce:
      return "reduce embedding";
    case OpKind::gradient_norm:
      return "norm";
    case OpKind::norm_prefix:
      return "norm so far to " + std::to_string(program.stream_of(id).peer);
    case OpKind::norm_total:
      return "norm back to " + std::to_string(program.stream_of(id).peer);
    case OpKind::optimizer:
      return "optimizer";
    case OpKind::offload:
    case OpKind::reload:
      return host_copy_name(op);
  }
  return "";
}

// ---- schedules ----

std::vector<int> random_layers(std::mt19937& random, int stages) {
  std::vector<int> layers(stages);
  for (int& count : layers) count = static_cast<int>(random() % 4);  // zero among them
  return layers;
}

// Buckets of so many units.
BucketRule units_a_bucket(int units) {
  BucketRule rule{.size = static_cast<double>(units)};
  rule.parameters.fill(1);
  return rule;
}

struct Counts {
  std::map<std::string, int> of;
  int tensors = 0;  // that transfers carry
};

Counts count(const Program& program) {
  Counts counts;
  for (OpId id = 0; id < program.ops.size(); ++id) {
    const Op& op = program.ops[id];
    const std::string pass(1, letter(op.pass));
    switch (op.kind) {
      case OpKind::compute:
        ++counts.of["compute " + to_string(op.unit, op.unit_pass) + suffix(op.part)];
        break;
      case OpKind::kv_exchange:
        ++counts.of["KV in " + pass];
        break;
      case OpKind::kv_gradient_exchange:
        ++counts.of["dKV in " + pass];
        break;
      case OpKind::all_to_all:
        ++counts.of["A2A in " + pass];
        break;
      case OpKind::row_exchange:
        ++counts.of["rows in " + pass];
        break;
      case OpKind::weight_gradients:
        ++counts.of["both " + to_string(op.unit)];
        break;
      case OpKind::all_reduce:
      case OpKind::reduce_scatter:
      case OpKind::all_gather:
        ++counts.of[collective_name(op.kind) + " in " + pass];
        break;
      case OpKind::transfer:
        ++counts.of["transfer"];
        counts.tensors += op.tensors();
        break;
      case OpKind::gradient_reduce:
        ++counts.of["gradient reduction"];
        break;
      case OpKind::gradient_scatter:
        ++counts.of["gradient scatter"];
        break;
      case OpKind::weight_gather:
        ++counts.of["weight gather"];
        break;
      case OpKind::embedding_reduce:
        ++counts.of["embedding reduction"];
        break;
      case OpKind::offload:
      case OpKind::reload:
        ++counts.of["host copy"];
        break;
      case OpKind::gradient_norm:
      case OpKind::norm_prefix:
      case OpKind::norm_total:
        ++counts.of["gradients' norm"];
        break;
      case OpKind::optimizer:
        ++counts.of["optimizer"];
        break;
    }
  }
  return counts;
}

// ---- units ----

TEST(Segments, OfEveryPassAreThoseOfSectionFive) {
  const auto text = [](Pass pass, int layers, bool last, BackwardOrder order, ChainOptions options = {}) {
    std::string all;
    for (const Segment& s : segments(pass, layers, last, order, options)) {
      all += to_string(s.unit) + std::to_string(s.layer);
      all += s.main == Segment::Main::forward ? ".F" : s.main == Segment::Main::input_gradient ? ".I" : ".W";
      if (s.weights == Segment::Weights::early_before_late_behind) all += "+early";
      if (s.all_reduce) all += "+AR";
      if (s.weights == Segment::Weights::early_before_late_behind) all += "+late";
      if (s.weights == Segment::Weights::both_behind) all += "+W";
      all += " ";
    }
    return all;
  };
  for (const BackwardOrder order : {BackwardOrder::suite, BackwardOrder::megatron}) {
    EXPECT_EQ(text(Pass::F, 2, false, order), "attn0.F+AR mlp0.F+AR attn1.F+AR mlp1.F+AR ");
    EXPECT_EQ(text(Pass::F, 1, true, order), "attn0.F+AR mlp0.F+AR head0.F ");
    EXPECT_EQ(text(Pass::F, 0, true, order), "head0.F ");
    EXPECT_EQ(text(Pass::I, 2, false, order), "mlp1.I+AR attn1.I+AR mlp0.I+AR attn0.I+AR ");
    EXPECT_EQ(text(Pass::I, 1, true, order), "head0.I mlp0.I+AR attn0.I+AR ");
    EXPECT_EQ(text(Pass::W, 2, false, order), "mlp1.W attn1.W mlp0.W attn0.W ");
    EXPECT_EQ(text(Pass::W, 1, true, order), "head0.W mlp0.W attn0.W ");
    EXPECT_EQ(text(Pass::B, 0, true, order), "head0.I+W ");
    for (const Pass pass : {Pass::F, Pass::I, Pass::W, Pass::B}) EXPECT_EQ(text(pass, 0, false, order), "");
  }
  EXPECT_EQ(text(Pass::B, 2, true, BackwardOrder::suite),
            "head0.I+W mlp1.I+AR+W attn1.I+AR+W mlp0.I+AR+W attn0.I+AR+W ");
  EXPECT_EQ(text(Pass::B, 1, false, BackwardOrder::suite), "mlp0.I+AR+W attn0.I+AR+W ");
  EXPECT_EQ(
      text(Pass::B, 2, true, BackwardOrder::megatron),
      "head0.I+W mlp1.I+early+AR+late attn1.I+early+AR+late mlp0.I+early+AR+late attn0.I+early+AR+late ");
  // Recomputation: each layer before its own backward; never the head; not for a W of its own.
  EXPECT_EQ(text(Pass::B, 2, true, BackwardOrder::suite, {.recompute = true}),
            "head0.I+W attn1.F+AR mlp1.F+AR mlp1.I+AR+W attn1.I+AR+W "
            "attn0.F+AR mlp0.F+AR mlp0.I+AR+W attn0.I+AR+W ");
  EXPECT_EQ(text(Pass::I, 1, false, BackwardOrder::suite, {.recompute = true}),
            "attn0.F+AR mlp0.F+AR mlp0.I+AR attn0.I+AR ");
  EXPECT_EQ(text(Pass::F, 1, true, BackwardOrder::suite, {.recompute = true}),
            "attn0.F+AR mlp0.F+AR head0.F ");
  EXPECT_EQ(text(Pass::W, 1, true, BackwardOrder::suite, {.recompute = true}), "head0.W mlp0.W attn0.W ");
  // The embedding comes first and has a weight gradient alone, last.
  const ChainOptions with{.embedding = true};
  EXPECT_EQ(text(Pass::F, 1, true, BackwardOrder::suite, with),
            "embedding0.F+AR attn0.F+AR mlp0.F+AR head0.F ");
  EXPECT_EQ(text(Pass::I, 1, false, BackwardOrder::suite, with), "mlp0.I+AR attn0.I+AR ");
  EXPECT_EQ(text(Pass::B, 1, false, BackwardOrder::suite, with), "mlp0.I+AR+W attn0.I+AR+W embedding0.W ");
  EXPECT_EQ(text(Pass::W, 1, false, BackwardOrder::megatron, with), "mlp0.W attn0.W embedding0.W ");
  // A vision encoder comes before it.
  const ChainOptions vision{.embedding = true, .vision_layers = 2};
  EXPECT_EQ(text(Pass::F, 0, false, BackwardOrder::suite, vision),
            "patches0.F vision_attn0.F+AR vision_mlp0.F+AR vision_attn1.F+AR vision_mlp1.F+AR merger0.F+AR "
            "embedding0.F+AR ");
  EXPECT_EQ(text(Pass::I, 0, false, BackwardOrder::suite, vision),
            "merger0.I+AR vision_mlp1.I+AR vision_attn1.I+AR vision_mlp0.I+AR vision_attn0.I+AR ");
  EXPECT_EQ(text(Pass::B, 0, false, BackwardOrder::megatron, vision),
            "embedding0.W merger0.I+early+AR+late vision_mlp1.I+early+AR+late vision_attn1.I+early+AR+late "
            "vision_mlp0.I+early+AR+late vision_attn0.I+early+AR+late patches0.W ");
  EXPECT_EQ(text(Pass::W, 0, false, BackwardOrder::suite, vision),
            "embedding0.W merger0.W vision_mlp1.W vision_attn1.W vision_mlp0.W vision_attn0.W patches0.W ");
}

// ---- lowering ----

constexpr Release kReleases[] = {Release::chain, Release::block, Release::released};

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
    const bool overlaps = program_.division.overlaps();
    const int last = program_.division.steps(op.unit, op.unit_pass, op.part) - 1;
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
                         (!program_.sequence_parallel || op.part == UnitPart::norm));
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
    const Held of_head = program_.sequence_parallel ? Held::share : Held::all;
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
                            .data_parallel = random() % 2 == 0,
                            .zero = random() % 2 == 0,
                            .embedding = true,
                            .sequence_parallel = random() % 2 == 0,
                            .recompute = kRecomputes[random() % std::size(kRecomputes)].choice,
                            .context_parallel = random() % 2 == 0 ? 1 : 2 + static_cast<int>(random() % 3),
                            .cp_method = static_cast<CpMethod>(draw % 2)};
    Lowering overlapped = lowering;
    if (lowering.sequence_parallel && random() % 2 == 0) {
      overlapped.tp_overlap = TpOverlap::megatron;
      overlapped.tensor_parallel = 1 + static_cast<int>(random() % 4);
    }
    const Program program = lower(schedule, layers, overlapped);
    ValueFlow(program).check();
    ASSERT_FALSE(testing::Test::HasFailure())
        << "draw " << draw << ", sequence parallel " << lowering.sequence_parallel << ", layers "
        << testing::PrintToString(layers) << ":\n"
        << to_text(schedule);
  }
}

// ---- lowering: vision encoders ----

TEST(Lower, PutsAVisionEncoderOnTheFirstStage) {
  const Schedule schedule = by_hand(Placement::loop(2, 1), 1, {{"F0.0", "I0.0", "W0.0"}, {"F0.0", "B0.0"}});
  const Program program = lower(schedule, {0, 1}, {.embedding = true, .vision_layers = 1});
  Texts first;
  for (OpId id = program.rank_begin[0]; id < program.rank_begin[1]; ++id)
    first.push_back(op_text(program, id));
  EXPECT_THAT(first,
              ElementsAre("F0.0: patches.F0", "F0.0: vision_attn.F0", "F0.0: AR vision_attn.F0",
                          "F0.0: vision_mlp.F0", "F0.0: AR vision_mlp.F0", "F0.0: merger.F0",
                          "F0.0: AR merger.F0", "F0.0: embedding.F", "F0.0: AR embedding.F",
                          "F0.0: send 1 to 1", "I0.0: merger.I0", "I0.0: AR merger.I0", "I0.0: vision_mlp.I0",
                          "I0.0: AR vision_mlp.I0", "I0.0: vision_attn.I0", "I0.0: AR vision_attn.I0",
                          "W0.0: embedding.W both", "W0.0: merger.W both0", "W0.0: vision_mlp.W both0",
                          "W0.0: vision_attn.W both0", "W0.0: patches.W both0"));
  const auto waits_for = [&](const std::string& op, const std::string& other) {
    for (OpId id = 0; id < program.ops.size(); ++id)
      if (op_text(program, id) == op)
        for (const OpId needed : program.dependencies(id))
          if (op_text(program, needed) == other) return true;
    return false;
  };
  EXPECT_TRUE(waits_for("I0.0: merger.I0", "B0.0: send 1 to 0"));
  EXPECT_TRUE(waits_for("F0.0: embedding.F", "F0.0: AR merger.F0"));
  EXPECT_TRUE(waits_for("W0.0: patches.W both0", "I0.0: AR vision_attn.I0"));
  EXPECT_FALSE(waits_for("W0.0: embedding.W both", "I0.0: AR vision_attn.I0"));
}

// All that a full backward has beside a split one is order.
TEST(Lower, OfAVisionEncoderIssuesEachUnitOncePerMicrobatch) {
  std::mt19937 random(512);
  for (int draw = 0; draw < 60; ++draw) {
    const int p = 1 + draw % 3, m = 1 + static_cast<int>(random() % 4);
    const Schedule schedule = random_schedule(random, draw % 2 ? Placement::v(p) : Placement::loop(p, 2), m);
    std::vector<int> layers = random_layers(random, 2 * p);
    layers[0] = 0;
    const Program program =
        lower(schedule, layers, {.release = kReleases[draw % 3], .embedding = true, .vision_layers = 3});
    std::map<std::string, int> of;
    for (const Op& op : program.ops)
      if (is_vision(op.unit) || op.unit == Unit::embedding)
        ++of[(op.kind == OpKind::all_reduce ? "AR " : "") + to_string(op.unit, op.unit_pass)];
    for (const std::string unit : {"vision_attn", "vision_mlp", "merger"})
      for (const std::string pass : {".F", ".I", ".W"}) {
        const int each = (unit == "merger" ? 1 : 3) * m;
        EXPECT_EQ(of[unit + pass], each) << unit << pass;
        EXPECT_EQ(of["AR " + unit + pass], pass == ".W" ? 0 : each) << unit << pass;
      }
    EXPECT_EQ(of["patches.F"] + of["patches.W"] + of["embedding.F"] + of["embedding.W"], 4 * m);
    EXPECT_EQ(of["AR embedding.F"], m);
    EXPECT_NO_THROW(issue_order(program));
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

TEST(Lower, RefusesLayersOnTheStageOfAVisionEncoder) {
  const auto refused = [](const Placement& placement, const std::vector<int>& layers) {
    std::mt19937 random(1);
    const Schedule schedule = random_schedule(random, placement, 1);
    return refusal([&] { lower(schedule, layers, {.embedding = true, .vision_layers = 3}); });
  };
  EXPECT_THAT(refused(Placement::loop(2, 1), {1, 1}),
              HasSubstr("begins with 1, but the first virtual stage is"));
  EXPECT_THAT(refused(Placement::loop(1, 1), {2}),
              HasSubstr("the vision encoder is a virtual stage of its own"));
}

// ---- lowering: closed forms ----

TEST(Lower, IssuesAsManyOpsOfEachKindAsThePassesSay) {
  std::mt19937 random(511);
  for (int draw = 0; draw < 60; ++draw) {
    const int p = 1 + static_cast<int>(random() % 4), m = 1 + static_cast<int>(random() % 6);
    const Placement placement = draw % 2 ? Placement::v(p) : Placement::loop(p, 2);
    const Schedule schedule = random_schedule(random, placement, m);
    const std::vector<int> layers = random_layers(random, placement.stages());
    const int last = placement.stages() - 1;
    // How many layers and heads each pass runs.
    std::map<Pass, int> layer_passes, head_passes;
    for (int rank = 0; rank < p; ++rank) {
      for (const Block& block : schedule.ranks[rank]) {
        for (const Action& action : block.actions()) {
          const int stage = placement.stage(rank, action.chunk);
          layer_passes[action.pass] += layers[stage];
          head_passes[action.pass] += stage == last;
        }
      }
    }
    const int all = m * std::accumulate(layers.begin(), layers.end(), 0);
    ASSERT_EQ(layer_passes[Pass::F], all);
    for (const BackwardOrder order : {BackwardOrder::suite, BackwardOrder::megatron}) {
      Counts counts = count(lower(schedule, layers, {Release::chain, order, false}));
      const bool suite = order == BackwardOrder::suite;
      EXPECT_EQ(counts.of["all-reduce in F"], 2 * all);
      EXPECT_EQ(counts.of["all-reduce in I"], 2 * layer_passes[Pass::I]);
      EXPECT_EQ(counts.of["all-reduce in B"], 2 * layer_passes[Pass::B]);
      EXPECT_EQ(counts.of["all-reduce in W"], 0);
      for (const std::string unit : {"attn", "mlp"}) {
        EXPECT_EQ(counts.of["compute " + unit + ".F"], all);
        EXPECT_EQ(counts.of["compute " + unit + ".I"], all);
        EXPECT_EQ(counts.of["compute " + unit + ".W_early"], suite ? 0 : layer_passes[Pass::B]);
        EXPECT_EQ(counts.of["compute " + unit + ".W"], suite ? 0 : layer_passes[Pass::B]);
        EXPECT_EQ(counts.of["both " + unit], layer_passes[Pass::W] + (suite ? layer_passes[Pass::B] : 0));
      }
      EXPECT_EQ(counts.of["compute head.F"], m);
      EXPECT_EQ(counts.of["compute head.I"], m);
      EXPECT_EQ(counts.of["both head"], m);
      EXPECT_EQ(counts.of["compute head.W"] + counts.of["compute head.W_early"], 0);
      EXPECT_EQ(counts.of["optimizer"], 0);
    }
  }
}

TEST(Lower, SendsOncePerHopBetweenRanksAndDirection) {
  for (int p = 1; p <= 5; ++p) {
    const int m = 3 * p + 1;
    // On a V the turn on the last rank is no hop, nor is the loss on the first.
    EXPECT_EQ(count(lower(stp_schedule(p, m), std::vector<int>(2 * p, 1), {})).of["transfer"],
              2 * m * 2 * (p - 1));
    std::mt19937 random(p);
    for (int v = 1; v <= 3; ++v) {
      const Schedule loop = random_schedule(random, Placement::loop(p, v), m);
      EXPECT_EQ(count(lower(loop, std::vector<int>(p * v, 1), {})).of["transfer"],
                p == 1 ? 0 : 2 * m * (p * v - 1));
    }
  }
}

TEST(Lower, MergesTheTransfersOfTwoForwardsWhereReleased) {
  for (int p = 2; p <= 6; ++p) {
    const Schedule schedule = stp_schedule(p, 3 * p);
    int pairs = 0;  // of forwards of one chunk whose output goes to another rank
    for (int rank = 0; rank < p; ++rank)
      for (const Block& block : schedule.ranks[rank])
        pairs += block.braided() && block.actions()[1].pass == Pass::F && rank + 1 < p;
    ASSERT_GT(pairs, p == 2 ? -1 : 0);
    const int hops = 2 * 3 * p * 2 * (p - 1);
    Counts apart =
        count(lower(schedule, std::vector<int>(2 * p, 1), {Release::block, BackwardOrder::suite, false}));
    Counts merged =
        count(lower(schedule, std::vector<int>(2 * p, 1), {Release::released, BackwardOrder::suite, false}));
    EXPECT_EQ(apart.of["transfer"], hops);
    EXPECT_EQ(apart.tensors, hops);
    EXPECT_EQ(merged.of["transfer"], hops - pairs);
    EXPECT_EQ(merged.tensors, hops);
  }
}

// The dependencies of the op that reads as `text`, as texts.
Texts waits_of(const Program& program, int rank, const std::string& text) {
  for (OpId op = program.rank_begin[rank]; op < program.rank_begin[rank + 1]; ++op) {
    if (op_text(program, op) != text) continue;
    Texts texts;
    for (const OpId needed : program.dependencies(op))
      texts.push_back(std::to_string(program.stream_of(needed).rank) + " " + op_text(program, needed));
    return texts;
  }
  return {"there is no " + text};
}

const Schedule& two_ranks() {
  static const Schedule schedule = by_hand(
      Placement::loop(2, 1), 2, {{"F0.0", "F0.1", "B0.0", "I0.1", "W0.1"}, {"F0.0", "F0.1&B0.0", "B0.1"}});
  return schedule;
}

TEST(LowerByHand, AChainsOutputLeavesWhenItsOwnMainLineIsDone) {
  const Program program = lower(two_ranks(), {1, 1}, {});
  EXPECT_THAT(waits_of(program, 0, "F0.1: attn.F0"), IsEmpty());
  EXPECT_THAT(waits_of(program, 0, "F0.1: AR attn.F0"), ElementsAre("0 F0.1: attn.F0"));
  EXPECT_THAT(waits_of(program, 0, "F0.1: mlp.F0"), ElementsAre("0 F0.1: AR attn.F0"));
  EXPECT_THAT(waits_of(program, 0, "F0.1: send 1 to 1"), ElementsAre("0 F0.1: AR mlp.F0"));
  EXPECT_THAT(waits_of(program, 1, "F0.1: attn.F0"), ElementsAre("0 F0.1: send 1 to 1"));
  EXPECT_THAT(waits_of(program, 1, "F0.1: head.F"), ElementsAre("1 F0.1: AR mlp.F0"));
  EXPECT_THAT(waits_of(program, 1, "B0.0: head.I"), ElementsAre("1 F0.0: head.F"));
  EXPECT_THAT(waits_of(program, 1, "B0.0: head.W both"), IsEmpty());
  EXPECT_THAT(waits_of(program, 1, "B0.0: mlp.I0"), IsEmpty());  // head.I is before it on its stream
  EXPECT_THAT(waits_of(program, 1, "B0.0: mlp.W both0"), IsEmpty());
  EXPECT_THAT(waits_of(program, 1, "B0.0: send 1 to 0"), ElementsAre("1 B0.0: AR attn.I0"));
  EXPECT_THAT(waits_of(program, 0, "B0.0: mlp.I0"), ElementsAre("1 B0.0: send 1 to 0"));
  EXPECT_THAT(waits_of(program, 0, "W0.1: mlp.W both0"), IsEmpty());
}

TEST(LowerByHand, ABlockHoldsItsInputsAndOutputsTogether) {
  const Program program = lower(two_ranks(), {1, 1}, {Release::block, BackwardOrder::suite, false});
  // B0.0 and its whole block wait for F0.0's head.F and last all-reduce.
  EXPECT_THAT(waits_of(program, 1, "F0.1: attn.F0"),
              ElementsAre("0 F0.1: send 1 to 1", "1 F0.0: head.F", "1 F0.0: AR mlp.F0"));
  EXPECT_THAT(waits_of(program, 1, "B0.0: head.I"), IsEmpty());
  EXPECT_THAT(waits_of(program, 1, "B0.0: send 1 to 0"),
              ElementsAre("1 B0.0: attn.W both0", "1 B0.0: AR attn.I0"));
  EXPECT_THAT(waits_of(program, 1, "B0.1: head.I"),
              ElementsAre("1 B0.0: attn.W both0", "1 B0.0: AR attn.I0"));
  EXPECT_THAT(waits_of(program, 0, "F0.1: attn.F0"), IsEmpty());
}

TEST(LowerByHand, AReleasedBlockWaitsForTheSendsOfTheBlockBefore) {
  const Program program = lower(two_ranks(), {1, 1}, {Release::released, BackwardOrder::suite, false});
  EXPECT_THAT(waits_of(program, 0, "F0.1: attn.F0"), ElementsAre("0 F0.0: send 1 to 1"));
  EXPECT_THAT(waits_of(program, 0, "B0.0: mlp.I0"),
              ElementsAre("1 B0.0: send 1 to 0", "0 F0.1: send 1 to 1"));
}

TEST(LowerByHand, TwoReleasedForwardsRunOneAfterTheOtherAndTravelTogether) {
  const Schedule schedule =
      by_hand(Placement::loop(2, 1), 2, {{"F0.0&F0.1", "B0.0", "B0.1"}, {"F0.0", "B0.0", "F0.1", "B0.1"}});
  const Program program = lower(schedule, {1, 1}, {Release::released, BackwardOrder::suite, false});
  EXPECT_THAT(waits_of(program, 0, "F0.1: attn.F0"), ElementsAre("0 F0.0: AR mlp.F0"));
  EXPECT_THAT(waits_of(program, 0, "F0.0: send 2 to 1"), ElementsAre("0 F0.1: mlp.F0", "0 F0.1: AR mlp.F0"));
  EXPECT_THAT(waits_of(program, 1, "F0.0: attn.F0"), ElementsAre("0 F0.0: send 2 to 1"));
  EXPECT_THAT(waits_of(program, 1, "F0.1: attn.F0"), testing::Contains("0 F0.0: send 2 to 1"));
  const Program braided = lower(schedule, {1, 1}, {Release::block, BackwardOrder::suite, false});
  EXPECT_THAT(waits_of(braided, 0, "F0.1: attn.F0"), IsEmpty());
  EXPECT_THAT(waits_of(braided, 0, "F0.1: send 1 to 1"), ElementsAre("0 F0.1: mlp.F0", "0 F0.1: AR mlp.F0"));
}

TEST(LowerByHand, WithoutBraidsEachActionIsABlockOfItsOwn) {
  const Lowering sequential{Release::block, BackwardOrder::suite, false, BraidPolicy::sequential};
  const Program program = lower(two_ranks(), {1, 1}, sequential);
  EXPECT_THAT(waits_of(program, 1, "F0.1: attn.F0"), ElementsAre("0 F0.1: send 1 to 1"));
  EXPECT_THAT(waits_of(program, 1, "B0.0: head.I"), ElementsAre("1 F0.0: head.F", "1 F0.0: AR mlp.F0"));
  EXPECT_EQ(program.schedule.ranks[1].size(), 4);
  // The same program as the order without braids, written out.
  const Schedule apart = by_hand(
      Placement::loop(2, 1), 2, {{"F0.0", "F0.1", "B0.0", "I0.1", "W0.1"}, {"F0.0", "F0.1", "B0.0", "B0.1"}});
  for (const Release release : {Release::chain, Release::block, Release::released}) {
    const Program of_braids =
        lower(two_ranks(), {1, 1}, {release, BackwardOrder::suite, false, BraidPolicy::sequential});
    const Program plain = lower(apart, {1, 1}, {release, BackwardOrder::suite, false});
    EXPECT_EQ(of_braids.depends, plain.depends);
    EXPECT_EQ(of_braids.depends_begin, plain.depends_begin);
    EXPECT_EQ(of_braids.ops.size(), plain.ops.size());
  }
}

TEST(LowerByHand, HalvesOfAMicrobatchAreBraidedAndWhatWasBraidedRunsInTurn) {
  const Schedule halves = split_microbatches(two_ranks());
  EXPECT_EQ(halves.microbatches, 4);
  EXPECT_EQ(to_text(halves),
            "# schedule by hand, placement loop\n"
            "F0.0&F0.1 F0.2&F0.3 B0.0&B0.1 I0.2&I0.3 W0.2&W0.3\n"
            "F0.0&F0.1 F0.2&F0.3 B0.0&B0.1 B0.2&B0.3\n");
  Lowering lowering;
  lowering.tp_overlap = TpOverlap::domino;
  const Program program = lower(two_ranks(), {1, 1}, lowering);
  EXPECT_EQ(to_text(program.schedule), to_text(halves));
  EXPECT_THAT(waits_of(program, 0, "F0.2: send 1 to 1"), ElementsAre("0 F0.2: AR mlp.F0"));
  EXPECT_THAT(waits_of(program, 0, "F0.3: send 1 to 1"), ElementsAre("0 F0.3: AR mlp.F0"));
  // The published trainer runs two forwards one after the other, but these are one; and one transfer.
  lowering.release = Release::released;
  const Program released = lower(two_ranks(), {1, 1}, lowering);
  EXPECT_THAT(waits_of(released, 0, "F0.3: attn.F0"), IsEmpty());
  EXPECT_THAT(waits_of(released, 0, "F0.2: send 2 to 1"), ElementsAre("0 F0.3: mlp.F0", "0 F0.3: AR mlp.F0"));
  EXPECT_THAT(waits_of(released, 1, "B0.0: send 2 to 0"),
              ElementsAre("1 B0.1: attn.W both0", "1 B0.1: AR attn.I0"));
}

TEST(Braid, HalvesOfAValidScheduleAreValidAndLimited) {
  std::mt19937 random(7);
  for (int i = 0; i < 200; ++i) {
    const int p = 1 + static_cast<int>(random() % 4), m = 1 + static_cast<int>(random() % 6);
    const Schedule whole = random_schedule(random, Placement::v(p), m), halves = split_microbatches(whole);
    validate(halves);
    const std::vector<int> peaks = peak_activations(halves);
    for (int rank = 0; rank < p; ++rank) {
      EXPECT_EQ(peaks[rank] % 2, 0);
      EXPECT_LE(peaks[rank] / 2, peak_activations(whole)[rank]);
    }
  }
  Schedule large{"large", Placement::loop(1, 1), kMaxMicrobatches, {{}}};
  EXPECT_THROW(split_microbatches(large), InputError);
}

TEST(LowerByHand, TheEarlyWeightGradientsStandBeforeTheAllReduce) {
  const Schedule schedule = by_hand(Placement::loop(1, 1), 1, {{"F0.0", "B0.0"}});
  const Program program = lower(schedule, {1}, {Release::chain, BackwardOrder::megatron, false});
  EXPECT_THAT(waits_of(program, 0, "B0.0: mlp.W_early0"), IsEmpty());
  EXPECT_THAT(waits_of(program, 0, "B0.0: AR mlp.I0"), ElementsAre("0 B0.0: mlp.W_early0"));
  EXPECT_THAT(waits_of(program, 0, "B0.0: mlp.W0"), IsEmpty());
  EXPECT_THAT(waits_of(program, 0, "B0.0: attn.I0"), ElementsAre("0 B0.0: AR mlp.I0"));
}

TEST(LowerByHand, SequenceParallelismHidesTheReduceScatterBehindWeightGradientsAndNotTheAllGather) {
  const Schedule schedule = by_hand(Placement::loop(1, 1), 2, {{"F0.0", "B0.0", "F0.1", "I0.1", "W0.1"}});
  const Lowering lowering{
      .backward = BackwardOrder::megatron, .optimizer = true, .embedding = true, .sequence_parallel = true};
  const Program program = lower(schedule, {1}, lowering);
  EXPECT_THAT(waits_of(program, 0, "F0.0: embedding.F"), IsEmpty());
  EXPECT_THAT(waits_of(program, 0, "F0.0: AG attn.F0"), ElementsAre("0 F0.0: embedding.F"));
  EXPECT_THAT(waits_of(program, 0, "F0.0: attn.F0"), ElementsAre("0 F0.0: AG attn.F0"));
  EXPECT_THAT(waits_of(program, 0, "F0.0: RS attn.F0"), ElementsAre("0 F0.0: attn.F0"));
  EXPECT_THAT(waits_of(program, 0, "F0.0: AG mlp.F0"), ElementsAre("0 F0.0: attn.F0"));
  EXPECT_THAT(waits_of(program, 0, "F0.0: head.F"), ElementsAre("0 F0.0: AG head.F"));
  EXPECT_THAT(waits_of(program, 0, "B0.0: AG mlp.I0"), ElementsAre("0 B0.0: head.W both"));
  EXPECT_THAT(waits_of(program, 0, "B0.0: RS mlp.I0"), ElementsAre("0 B0.0: mlp.W_early0"));
  EXPECT_THAT(waits_of(program, 0, "B0.0: mlp.W0"), IsEmpty());
  EXPECT_THAT(waits_of(program, 0, "B0.0: AG attn.I0"), ElementsAre("0 B0.0: mlp.W0"));
  EXPECT_THAT(waits_of(program, 0, "B0.0: AG embedding.W"), ElementsAre("0 B0.0: attn.W0"));
  EXPECT_THAT(waits_of(program, 0, "B0.0: embedding.W both"), ElementsAre("0 B0.0: AG embedding.W"));
  // W gathers what I left at once, and needs it at its end.
  EXPECT_THAT(waits_of(program, 0, "W0.1: AG embedding.W"), ElementsAre("0 I0.1: RS attn.I0"));
  EXPECT_THAT(waits_of(program, 0, "W0.1: head.W both"), IsEmpty());
  EXPECT_THAT(waits_of(program, 0, "W0.1: embedding.W both"), ElementsAre("0 W0.1: AG embedding.W"));
  EXPECT_THAT(waits_of(program, 0, "optimizer"), ElementsAre("0 I0.1: RS attn.I0"));
  const Program plain = lower(schedule, {1}, {.backward = BackwardOrder::megatron, .embedding = true});
  Counts with = count(program), without = count(plain);
  const std::map<std::string, int> gathers{{"F", 2 * 3}, {"B", 3}, {"I", 2}, {"W", 1}};
  for (const auto& [pass, expected] : gathers) {
    EXPECT_EQ(with.of["all-reduce in " + pass], 0);
    EXPECT_EQ(with.of["reduce-scatter in " + pass], without.of["all-reduce in " + pass]);
    EXPECT_EQ(with.of["all-gather in " + pass], expected);
  }
}

TEST(LowerByHand, SequenceParallelismGathersWhatComesFromAnotherRankBeforeTheBlock) {
  const Lowering lowering{.embedding = true, .sequence_parallel = true};
  for (const Release release : kReleases) {
    Lowering with = lowering;
    with.release = release;
    const Program program = lower(two_ranks(), {1, 1}, with);
    EXPECT_THAT(waits_of(program, 0, "F0.0: send 1 to 1"), testing::Contains("0 F0.0: RS mlp.F0"));
    EXPECT_THAT(waits_of(program, 1, "F0.1: AG attn.F0"), testing::Contains("0 F0.1: send 1 to 1"));
    EXPECT_THAT(waits_of(program, 1, "F0.1: attn.F0"), testing::Contains("1 F0.1: AG attn.F0"));
  }
}

TEST(LowerByHand, TheEmbeddingIsOnTheFirstVirtualStageAloneAndItsGradientWaitsForTheLastAllReduce) {
  const Schedule schedule = by_hand(
      Placement::v(2), 1, {{"F0.0", "F1.0", "I1.0", "W1.0", "B0.0"}, {"F0.0", "F1.0", "B1.0", "B0.0"}});
  const Program program = lower(schedule, {1, 1, 1, 1}, {.embedding = true});
  EXPECT_THAT(waits_of(program, 0, "F0.0: embedding.F"), IsEmpty());
  EXPECT_THAT(waits_of(program, 0, "F0.0: AR embedding.F"), ElementsAre("0 F0.0: embedding.F"));
  EXPECT_THAT(waits_of(program, 0, "F0.0: attn.F0"), ElementsAre("0 F0.0: AR embedding.F"));
  EXPECT_THAT(waits_of(program, 0, "B0.0: embedding.W both"), ElementsAre("0 B0.0: AR attn.I0"));
  const Program plain = lower(schedule, {1, 1, 1, 1}, {});
  EXPECT_EQ(program.ops.size(), plain.ops.size() + 3);
}

TEST(LowerByHand, ARecomputedLayerWaitsForTheGradientAndItsBackwardForIt) {
  const Schedule schedule = by_hand(Placement::loop(2, 1), 1, {{"F0.0", "B0.0"}, {"F0.0", "B0.0"}});
  const Program program = lower(schedule, {1, 1}, {.recompute = {.layer = true}});
  EXPECT_THAT(waits_of(program, 0, "B0.0: attn.F0"), ElementsAre("1 B0.0: send 1 to 0"));
  EXPECT_THAT(waits_of(program, 0, "B0.0: mlp.F0"), ElementsAre("0 B0.0: AR attn.F0"));
  EXPECT_THAT(waits_of(program, 0, "B0.0: mlp.I0"), ElementsAre("0 B0.0: AR mlp.F0"));
  EXPECT_THAT(waits_of(program, 1, "B0.0: send 1 to 0"), ElementsAre("1 B0.0: AR attn.I0"));
  EXPECT_EQ(count(program).of["all-reduce in B"], 8);
}

TEST(LowerByHand, RecomputedPartsOfUnitsAreInsideTheirOps) {
  const Schedule schedule = by_hand(Placement::loop(2, 1), 1, {{"F0.0", "B0.0"}, {"F0.0", "I0.0", "W0.0"}});
  for (const bool sequence_parallel : {false, true}) {
    const auto ops = [&](const Recompute& recompute) {
      const Program program =
          lower(schedule, {1, 1}, {.sequence_parallel = sequence_parallel, .recompute = recompute});
      std::vector<std::string> all;
      for (OpId op = 0; op < program.ops.size(); ++op) all.push_back(describe(program, op));
      return std::pair(all, program.depends);
    };
    for (const auto& [name, recompute] : kRecomputes) {
      EXPECT_EQ(ops(recompute) == ops({}), !recompute.layer) << name;
    }
  }
}

TEST(LowerByHand, ContextParallelismDividesAttnAndItsExchangesStandBesideTheStepsOfItsCore) {
  const auto schedule = by_hand(Placement::loop(1, 1), 1, {{"F0.0", "B0.0"}});
  Lowering lowering{.backward = BackwardOrder::megatron};
  lowering.context_parallel = 3;
  const Program program = lower(schedule, {1}, lowering);
  Texts texts;
  for (OpId op = 0; op < program.ops.size(); ++op)
    if (program.ops[op].unit == Unit::attn) texts.push_back(op_text(program, op).substr(6));
  EXPECT_THAT(texts,
              ElementsAre("attn.F_before0", "KV attn.F0, 1", "attn.F_core0, step 0", "KV attn.F0, 2",
                          "attn.F_core0, step 1", "attn.F_core0, step 2", "attn.F_after0", "AR attn.F0",
                          "attn.I_before0", "KV attn.I0, 1", "attn.I_core0, step 0", "KV attn.I0, 2",
                          "dKV attn.I0, 1", "attn.I_core0, step 1", "dKV attn.I0, 2", "attn.I_core0, step 2",
                          "dKV attn.I0, 3", "attn.I_after0", "attn.W_early0", "AR attn.I0", "attn.W0"));
  const auto waits = [&](const std::string& text) { return waits_of(program, 0, "B0.0: " + text); };
  EXPECT_THAT(waits("attn.I_before0"), ElementsAre("0 B0.0: AR mlp.I0"));
  EXPECT_THAT(waits("KV attn.I0, 1"), ElementsAre("0 B0.0: attn.I_before0"));
  EXPECT_THAT(waits("attn.I_core0, step 0"), IsEmpty());
  EXPECT_THAT(waits("KV attn.I0, 2"), ElementsAre("0 B0.0: attn.I_core0, step 0"));
  EXPECT_THAT(waits("dKV attn.I0, 1"), ElementsAre("0 B0.0: attn.I_core0, step 0"));
  EXPECT_THAT(waits("attn.I_core0, step 1"), ElementsAre("0 B0.0: KV attn.I0, 1"));
  EXPECT_THAT(waits("attn.I_core0, step 2"), ElementsAre("0 B0.0: KV attn.I0, 2"));
  EXPECT_THAT(waits("dKV attn.I0, 3"), ElementsAre("0 B0.0: attn.I_core0, step 2"));
  EXPECT_THAT(waits("attn.I_after0"), ElementsAre("0 B0.0: dKV attn.I0, 3"));
  EXPECT_THAT(waits("AR attn.I0"), ElementsAre("0 B0.0: attn.W_early0"));
}

TEST(LowerByHand, AllToAllsStandBeforeAndBehindTheCore) {
  const auto schedule = by_hand(Placement::loop(1, 1), 1, {{"F0.0", "B0.0"}});
  Lowering lowering{.backward = BackwardOrder::megatron};
  lowering.context_parallel = 4;
  lowering.cp_method = CpMethod::all_to_all;
  const auto of_attn = [&](const Program& program, Pass pass) {
    Texts texts;
    for (OpId op = 0; op < program.ops.size(); ++op)
      if (program.ops[op].unit == Unit::attn && program.ops[op].pass == pass)
        texts.push_back(op_text(program, op).substr(6));
    return texts;
  };
  const Program program = lower(schedule, {1}, lowering);
  EXPECT_THAT(of_attn(program, Pass::F), ElementsAre("attn.F_before0", "A2A attn.F0, 1", "attn.F_core0",
                                                     "A2A attn.F0, 2", "attn.F_after0", "AR attn.F0"));
  EXPECT_THAT(of_attn(program, Pass::B),
              ElementsAre("attn.I_before0", "A2A attn.I0, 1", "attn.I_core0", "A2A attn.I0, 2",
                          "attn.I_after0", "attn.W_early0", "AR attn.I0", "attn.W0"));
  const auto waits = [&](const std::string& text) { return waits_of(program, 0, "B0.0: " + text); };
  EXPECT_THAT(waits("attn.I_before0"), ElementsAre("0 B0.0: AR mlp.I0"));
  EXPECT_THAT(waits("A2A attn.I0, 1"), ElementsAre("0 B0.0: attn.I_before0"));
  EXPECT_THAT(waits("attn.I_core0"), ElementsAre("0 B0.0: A2A attn.I0, 1"));
  EXPECT_THAT(waits("A2A attn.I0, 2"), ElementsAre("0 B0.0: attn.I_core0"));
  EXPECT_THAT(waits("attn.I_after0"), ElementsAre("0 B0.0: A2A attn.I0, 2"));
  // A recomputed core finds q, k and v where they are, unless they are recomputed too.
  lowering.recompute = {.core = true};
  EXPECT_THAT(
      of_attn(lower(schedule, {1}, lowering), Pass::B),
      ElementsAre("attn.I_before0", "attn.F_core0", "A2A attn.F0, 2", "A2A attn.I0, 1", "attn.I_core0",
                  "A2A attn.I0, 2", "attn.I_after0", "attn.W_early0", "AR attn.I0", "attn.W0"));
  lowering.recompute.qkv = true;
  EXPECT_THAT(of_attn(lower(schedule, {1}, lowering), Pass::B)[1], "A2A attn.F0, 1");
}

TEST(LowerByHand, OverlapPutsExchangesAndPiecesOfSumsBesideTheStepsOfAUnit) {
  const auto schedule = by_hand(Placement::loop(1, 1), 1, {{"F0.0", "B0.0"}});
  Lowering lowering{.backward = BackwardOrder::megatron, .sequence_parallel = true};
  lowering.tp_overlap = TpOverlap::megatron;
  lowering.tensor_parallel = 3;
  const Program program = lower(schedule, {1}, lowering);
  const auto of = [&](Unit unit, Pass pass) {
    Texts texts;
    for (OpId op = 0; op < program.ops.size(); ++op)
      if (program.ops[op].unit == unit && program.ops[op].pass == pass)
        texts.push_back(op_text(program, op).substr(6));
    return texts;
  };
  EXPECT_THAT(of(Unit::attn, Pass::F),
              ElementsAre("attn.F_norm0", "rows attn.F0, 1", "attn.F_before0, step 0", "rows attn.F0, 2",
                          "attn.F_before0, step 1", "attn.F_before0, step 2", "attn.F_core0",
                          "attn.F_after0, step 0", "RS attn.F0, piece 0", "attn.F_after0, step 1",
                          "RS attn.F0, piece 1", "attn.F_after0, step 2", "RS attn.F0, piece 2",
                          "attn.F_after0, step 3", "RS attn.F0, piece 3"));
  EXPECT_THAT(of(Unit::mlp, Pass::B),
              ElementsAre("rows mlp.I0, 1", "mlp.I_before0, step 0", "rows mlp.I0, 2",
                          "mlp.I_before0, step 1", "mlp.I_before0, step 2", "mlp.I_core0", "mlp.I_after0",
                          "mlp.W_early0", "RS mlp.I0", "mlp.W0"));
  const auto waits = [&](const std::string& text) { return waits_of(program, 0, text); };
  EXPECT_THAT(waits("F0.0: attn.F_norm0"), IsEmpty());
  EXPECT_THAT(waits("F0.0: rows attn.F0, 1"), ElementsAre("0 F0.0: attn.F_norm0"));
  EXPECT_THAT(waits("F0.0: attn.F_before0, step 0"), IsEmpty());
  EXPECT_THAT(waits("F0.0: rows attn.F0, 2"), IsEmpty());
  EXPECT_THAT(waits("F0.0: attn.F_before0, step 2"), ElementsAre("0 F0.0: rows attn.F0, 2"));
  EXPECT_THAT(waits("F0.0: RS attn.F0, piece 1"), ElementsAre("0 F0.0: attn.F_after0, step 1"));
  EXPECT_THAT(waits("F0.0: mlp.F_norm0"), ElementsAre("0 F0.0: RS attn.F0, piece 3"));
  EXPECT_THAT(waits("F0.0: AG head.F"), ElementsAre("0 F0.0: mlp.F_after0, step 3"));
  EXPECT_THAT(waits("B0.0: rows mlp.I0, 1"), ElementsAre("0 B0.0: head.W both"));
  EXPECT_THAT(waits("B0.0: rows attn.I0, 1"), ElementsAre("0 B0.0: RS mlp.I0", "0 B0.0: mlp.W0"));
  EXPECT_THAT(waits("B0.0: attn.I_before0, step 0"), ElementsAre("0 B0.0: RS mlp.I0"));
  EXPECT_THAT(waits("B0.0: attn.I_before0, step 1"), ElementsAre("0 B0.0: rows attn.I0, 1"));
  // One rank has nothing to exchange.
  lowering.tensor_parallel = 1;
  Lowering plain = lowering;
  plain.tp_overlap = TpOverlap::none;
  const auto same = [&](const Program& a, const Program& b) {
    for (OpId op = 0; op < a.ops.size(); ++op)
      if (op_text(a, op) != op_text(b, op)) return false;
    return a.ops.size() == b.ops.size();
  };
  EXPECT_TRUE(same(lower(schedule, {1}, lowering), lower(schedule, {1}, plain)));
}

TEST(LowerByHand, ARecomputedCoreGoesRoundTheRingBeforeItsBackwardDoes) {
  const auto schedule = by_hand(Placement::loop(1, 1), 1, {{"F0.0", "I0.0", "W0.0"}});
  Lowering lowering{.recompute = {.core = true}};
  lowering.context_parallel = 2;
  const Program program = lower(schedule, {1}, lowering);
  Texts texts;
  for (OpId op = 0; op < program.ops.size(); ++op)
    if (program.ops[op].unit == Unit::attn && program.ops[op].pass == Pass::I)
      texts.push_back(op_text(program, op).substr(6));
  EXPECT_THAT(texts,
              ElementsAre("attn.I_before0", "KV attn.F0, 1", "attn.F_core0, step 0", "attn.F_core0, step 1",
                          "KV attn.I0, 1", "attn.I_core0, step 0", "dKV attn.I0, 1", "attn.I_core0, step 1",
                          "dKV attn.I0, 2", "attn.I_after0", "AR attn.I0"));
  EXPECT_THAT(waits_of(program, 0, "I0.0: KV attn.I0, 1"), ElementsAre("0 I0.0: attn.F_core0, step 1"));
}

TEST(LowerByHand, AChunkWithoutLayersPassesItsInputOn) {
  const Schedule schedule =
      by_hand(Placement::loop(3, 1), 1, {{"F0.0", "B0.0"}, {"F0.0", "I0.0", "W0.0"}, {"F0.0", "B0.0"}});
  for (const Release release : kReleases) {
    const Program program = lower(schedule, {1, 0, 0}, {release, BackwardOrder::suite, false});
    EXPECT_EQ(program.rank_begin[2] - program.rank_begin[1], 2U);
    EXPECT_THAT(waits_of(program, 1, "F0.0: send 1 to 2"), ElementsAre("0 F0.0: send 1 to 1"));
    EXPECT_THAT(waits_of(program, 1, "I0.0: send 1 to 0"), ElementsAre("2 B0.0: send 1 to 1"));
    EXPECT_THAT(waits_of(program, 2, "F0.0: head.F"), ElementsAre("1 F0.0: send 1 to 2"));
  }
  // On one rank it makes no ops.
  const Schedule turn = by_hand(Placement::v(1), 1, {{"F0.0", "F1.0", "B1.0", "B0.0"}});
  const Program program = lower(turn, {0, 1}, {});
  EXPECT_THAT(waits_of(program, 0, "F1.0: attn.F0"), IsEmpty());
  EXPECT_EQ(count(program).of["transfer"], 0);
}

TEST(LowerByHand, TheTurnOfTheVNeedsNoTransfer) {
  const Schedule schedule =
      by_hand(Placement::v(2), 1, {{"F0.0", "F1.0", "B1.0", "B0.0"}, {"F0.0", "F1.0", "B1.0", "B0.0"}});
  const Program program = lower(schedule, {1, 1, 1, 1}, {});
  EXPECT_THAT(waits_of(program, 1, "F1.0: attn.F0"), ElementsAre("1 F0.0: AR mlp.F0"));
  EXPECT_THAT(waits_of(program, 1, "B0.0: mlp.I0"), ElementsAre("1 B1.0: AR attn.I0"));
}

TEST(Lower, SendsOnEachLinkInTheSendersProgramOrder) {
  std::mt19937 random(512);
  for (int draw = 0; draw < 100; ++draw) {
    const int p = 2 + static_cast<int>(random() % 3);
    const Placement placement = random() % 2 ? Placement::v(p) : Placement::loop(p, 2);
    const Schedule schedule = random_schedule(random, placement, 4);
    const Program program = lower(schedule, std::vector<int>(placement.stages(), 1), {});
    std::map<std::pair<int, int>, Texts> expected, sent;
    for (int rank = 0; rank < p; ++rank) {
      for (const Block& block : schedule.ranks[rank]) {
        for (const Action& action : block.actions()) {
          const int stage = placement.stage(rank, action.chunk),
                    next = stage + (action.pass == Pass::F ? 1 : -1);
          if (action.pass == Pass::W || next < 0 || next == placement.stages() ||
              placement.rank_of(next) == rank)
            continue;
          expected[{rank, placement.rank_of(next)}].push_back(to_string(action));
        }
      }
    }
    for (OpId op = 0; op < program.ops.size(); ++op) {
      const ProgramStream& stream = program.stream_of(op);
      if (stream.kind == StreamKind::p2p)
        sent[{stream.rank, stream.peer}].push_back(
            to_string(Action{program.ops[op].pass, program.ops[op].chunk, program.ops[op].microbatch}));
    }
    EXPECT_EQ(sent, expected);
  }
}

TEST(Lower, EndsEachRankWithAnOptimizerOpThatWaitsForNothingButItsStream) {
  const Program program =
      lower(stp_schedule(3, 8), std::vector<int>(6, 1), {Release::chain, BackwardOrder::suite, true});
  for (int rank = 0; rank < 3; ++rank) {
    const OpId last = program.rank_begin[rank + 1] - 1;
    EXPECT_EQ(program.ops[last].kind, OpKind::optimizer);
    EXPECT_EQ(program.ops[last].block, -1);
    EXPECT_EQ(program.stage_of(last), -1);
    EXPECT_EQ(program.stream_of(last).kind, StreamKind::compute);
    EXPECT_THAT(program.dependencies(last), IsEmpty());
  }
  EXPECT_EQ(count(program).of["optimizer"], 3);
}

// The norm of the gradients goes from rank to rank, and in the next step back.
TEST(Lower, PassesTheNormOnAndBack) {
  const Program program =
      lower(by_hand(Placement::loop(3, 1), 2,
                    {{"F0.0", "F0.1", "B0.0", "B0.1"},
                     {"F0.0", "F0.1", "B0.0", "B0.1"},
                     {"F0.0", "B0.0", "F0.1", "B0.1"}}),
            {1, 1, 1}, {.optimizer = true, .data_parallel = true, .post_validation = true});
  std::vector<std::string> found;  // what has to do with it
  for (OpId op = 0; op < program.ops.size(); ++op) {
    std::vector<OpId> needed;
    for (const OpId each : program.dependencies(op))
      if (program.ops[each].block < 0) needed.push_back(each);
    if (program.ops[op].block >= 0 && needed.empty()) continue;
    found.push_back(std::to_string(program.stream_of(op).rank) + " " + describe_op(program, op) + ":");
    for (const OpId each : program.dependencies(op))
      if (program.ops[op].block < 0 || program.ops[each].block < 0)
        found.back() +=
            " " + std::to_string(program.stream_of(each).rank) + " " + describe_op(program, each) + ";";
  }
  EXPECT_THAT(found,
              ElementsAre("0 mlp.I of B0.0, layer 0: 1 last step's norm to rank 0;",
                          "0 norm of the gradients: 0 gradients of chunk 0;",
                          "0 norm so far to rank 1: 0 norm of the gradients;",
                          "0 optimizer:", "1 last step's norm to rank 0: 2 last step's norm to rank 1;",
                          "1 mlp.I of B0.0, layer 0: 2 last step's norm to rank 1;",
                          "1 norm of the gradients: 1 gradients of chunk 0;",
                          "1 norm so far to rank 2: 1 norm of the gradients; 0 norm so far to rank 1;",
                          "1 optimizer: 0 norm so far to rank 1;",
                          "2 last step's norm to rank 1:", "2 norm of the gradients: 2 gradients of chunk 0;",
                          "2 optimizer: 1 norm so far to rank 2;"));
}

TEST(Lower, AddsUpTiedEmbeddingsOnceBothRanksHaveAllGradients) {
  const Schedule schedule =
      by_hand(Placement::loop(3, 1), 1, {{"F0.0", "B0.0"}, {"F0.0", "B0.0"}, {"F0.0", "B0.0"}});
  const auto reductions = [](const Program& program) {
    std::vector<std::pair<int, std::vector<std::string>>> found;  // the rank, and what it waits for
    for (OpId op = 0; op < program.ops.size(); ++op) {
      if (program.ops[op].kind != OpKind::embedding_reduce) continue;
      found.push_back({program.stream_of(op).rank, {}});
      for (const OpId needed : program.dependencies(op))
        found.back().second.push_back(std::to_string(program.stream_of(needed).rank) + " " +
                                      describe_op(program, needed));
      const OpId last = program.rank_begin[found.back().first + 1] - 1;
      EXPECT_THAT(program.dependencies(last), testing::Contains(op)) << "the optimizer";
    }
    return found;
  };
  const std::vector<std::string> of_chunks = {"0 gradients of chunk 0", "2 gradients of chunk 0"};
  EXPECT_THAT(
      reductions(lower(schedule, {1, 1, 1}, {.optimizer = true, .data_parallel = true, .tied = true})),
      ElementsAre(std::pair{0, of_chunks}, std::pair{2, of_chunks}));
  const std::vector<std::string> computes = {"0 attn.W of B0.0, layer 0", "2 attn.W of B0.0, layer 0"};
  EXPECT_THAT(reductions(lower(schedule, {1, 1, 1}, {.optimizer = true, .tied = true})),
              ElementsAre(std::pair{0, computes}, std::pair{2, computes}));
  // Both ends of a V are on one rank, which has one copy.
  const Program v =
      lower(stp_schedule(2, 8), {1, 1, 1, 1}, {.optimizer = true, .data_parallel = true, .tied = true});
  EXPECT_THAT(reductions(v), IsEmpty());
}

// Which of the ops that `of_interest` are done once an op starts: those that it depends on, those before it
// on its stream, and theirs.
std::vector<std::set<OpId>> done_before(const Program& program,
                                        const std::function<bool(const Op&)>& of_interest) {
  std::vector<std::set<OpId>> done(program.ops.size());
  std::map<uint32_t, OpId> before;
  for (const OpId op : issue_order(program).ops) {
    std::vector<OpId> needed(program.dependencies(op).begin(), program.dependencies(op).end());
    if (const auto found = before.find(program.ops[op].stream); found != before.end())
      needed.push_back(found->second);
    before[program.ops[op].stream] = op;
    for (const OpId each : needed) {
      done[op].insert(done[each].begin(), done[each].end());
      if (of_interest(program.ops[each])) done[op].insert(each);
    }
  }
  return done;
}

// ZeRO-1: every chunk that has weights gathers them once, or once a bucket, before what reads them.
TEST(Lower, GathersWeightsBeforeTheirFirstUse) {
  std::mt19937 random(512);
  for (int draw = 0; draw < 200; ++draw) {
    const int p = 1 + static_cast<int>(random() % 4);
    const Placement placement = draw % 2 ? Placement::v(p) : Placement::loop(p, 2);
    const std::vector<int> layers = random_layers(random, placement.stages());
    Lowering lowering{.release = kReleases[random() % 3],
                      .data_parallel = true,
                      .zero = true,
                      .buckets = units_a_bucket(draw % 4),
                      .embedding = true,
                      .sequence_parallel = random() % 2 == 0};
    if (lowering.sequence_parallel && draw % 3 == 0) {
      lowering.tp_overlap = TpOverlap::megatron;
      lowering.tensor_parallel = 2;
    }
    const Schedule schedule = random_schedule(random, placement, 1 + static_cast<int>(random() % 4));
    const Program program = lower(schedule, layers, lowering);
    int of_chunks = 0;
    for (int stage = 0; stage < placement.stages(); ++stage)
      if (layers[stage] > 0 || stage == 0 || stage + 1 == placement.stages())
        of_chunks += std::max(1, static_cast<int>(program.buckets(stage).size()));
    Counts counts = count(program);
    EXPECT_EQ(counts.of["weight gather"], of_chunks);
    EXPECT_EQ(counts.of["gradient scatter"], of_chunks);
    EXPECT_EQ(counts.of["gradient reduction"], 0);
    const auto gathered = done_before(program, [](const Op& op) { return op.kind == OpKind::weight_gather; });
    for (OpId op = 0; op < program.ops.size(); ++op) {
      const Op& reader = program.ops[op];
      if (reader.kind != OpKind::compute && reader.kind != OpKind::all_gather) continue;
      const auto buckets = program.buckets(program.stage_of(op));
      EXPECT_TRUE(std::any_of(gathered[op].begin(), gathered[op].end(), [&](OpId gather) {
        return program.ops[gather].chunk == reader.chunk &&
               program.stream_of(gather).rank == program.stream_of(op).rank &&
               (buckets.empty() || buckets[program.ops[gather].step].has(reader.unit, reader.layer));
      })) << describe(program, op);
    }
    ASSERT_FALSE(testing::Test::HasFailure()) << "draw " << draw << "\n" << to_text(schedule);
  }
}

// ---- lowering: buckets ----

// Whether an op adds to gradients of its unit: of weights, or of the norm's gain.
bool makes_gradients(const Program& program, const Op& op) {
  if (op.kind == OpKind::weight_gradients) return true;
  if (op.kind == OpKind::reduce_scatter) return op.unit_pass == UnitPass::I;
  if (op.kind != OpKind::compute || op.unit_pass == UnitPass::F) return false;
  return op.unit_pass != UnitPass::I || !program.sequence_parallel || op.unit == Unit::head;
}

// The dependencies of each op of a chunk's gradients or weights, and of the ops that wait for weights.
Texts of_buckets(const Program& program) {
  Texts found;
  for (OpId op = 0; op < program.rank_begin[1]; ++op) {
    const OpKind kind = program.ops[op].kind;
    for (const OpId needed : program.dependencies(op))
      if (kind == OpKind::gradient_reduce || kind == OpKind::gradient_scatter ||
          program.ops[needed].kind == OpKind::weight_gather)
        found.push_back(describe_op(program, op) + ": " + describe_op(program, needed));
  }
  return found;
}

TEST(Lower, ReducesTheFirstStageBucketByBucketAsItsLastBackwardFillsThem) {
  const Schedule schedule =
      by_hand(Placement::loop(2, 1), 2, {{"F0.0", "F0.1", "B0.0", "B0.1"}, {"F0.0", "B0.0", "F0.1", "B0.1"}});
  Lowering lowering{.data_parallel = true, .buckets = units_a_bucket(2), .embedding = true};
  const Program program = lower(schedule, {2, 1}, lowering);
  EXPECT_THAT(of_buckets(program), ElementsAre("gradients of chunk 0, bucket 0: attn.W of B0.1, layer 1",
                                               "gradients of chunk 0, bucket 1: attn.W of B0.1, layer 0",
                                               "gradients of chunk 0, bucket 2: embedding.W of B0.1"));
  EXPECT_EQ(count(program).of["gradient reduction"], 3 + 1);  // those of the last stage at once
  lowering.zero = lowering.sequence_parallel = true;
  EXPECT_THAT(of_buckets(lower(schedule, {2, 1}, lowering)),
              ElementsAre("embedding.F of F0.0: weights of chunk 0, bucket 2",
                          "all-gather of attn.F of F0.0, layer 0: weights of chunk 0, bucket 1",
                          "all-gather of attn.F of F0.0, layer 1: weights of chunk 0, bucket 0",
                          "gradients of chunk 0, bucket 0: attn.W of B0.1, layer 1",
                          "gradients of chunk 0, bucket 0: reduce-scatter of attn.I of B0.1, layer 1",
                          "gradients of chunk 0, bucket 1: attn.W of B0.1, layer 0",
                          "gradients of chunk 0, bucket 1: reduce-scatter of attn.I of B0.1, layer 0",
                          "gradients of chunk 0, bucket 2: embedding.W of B0.1"));
  lowering.buckets.size = 100;
  EXPECT_TRUE(lower(schedule, {2, 1}, lowering).first_buckets.empty());
  lowering = {.buckets = units_a_bucket(1), .embedding = true};  // of one replica
  EXPECT_TRUE(lower(schedule, {2, 1}, lowering).first_buckets.empty());
}

// Every op that adds to a bucket's gradients, of any microbatch, is done before they are reduced.
TEST(Lower, ReducesABucketBehindAllThatAddsToIt) {
  std::mt19937 random(514);
  for (int draw = 0; draw < 300; ++draw) {
    const int p = 1 + static_cast<int>(random() % 3);
    const Placement placement = draw % 2 ? Placement::v(p) : Placement::loop(p, 1 + draw % 3);
    std::vector<int> layers = random_layers(random, placement.stages());
    Lowering lowering{.release = kReleases[random() % 3],
                      .backward = random() % 2 ? BackwardOrder::suite : BackwardOrder::megatron,
                      .optimizer = true,
                      .data_parallel = true,
                      .zero = random() % 2 == 0,
                      .buckets = units_a_bucket(1 + draw % 3),
                      .embedding = true,
                      .sequence_parallel = random() % 2 == 0,
                      .recompute = kRecomputes[random() % std::size(kRecomputes)].choice};
    if (draw % 5 == 0 && placement.stages() > 1) {
      layers[0] = 0;
      lowering.vision_layers = 2;
      lowering.sequence_parallel = false;
    }
    const Schedule schedule = random_schedule(random, placement, 1 + static_cast<int>(random() % 4));
    const Program program = lower(schedule, layers, lowering);
    const int first = placement.rank_of(0);
    const auto done = done_before(program, [&](const Op& op) { return makes_gradients(program, op); });
    size_t reductions = 0;
    for (OpId op = program.rank_begin[first]; op < program.rank_begin[first + 1]; ++op) {
      const Op& reduction = program.ops[op];
      const bool reduces =
          reduction.kind == OpKind::gradient_reduce || reduction.kind == OpKind::gradient_scatter;
      if (!reduces || program.stage_of(op) != 0 || program.first_buckets.empty()) continue;
      EXPECT_EQ(reduction.step, reductions++);
      for (OpId maker = program.rank_begin[first]; maker < program.rank_begin[first + 1]; ++maker) {
        const Op& made = program.ops[maker];
        if (makes_gradients(program, made) && program.stage_of(maker) == 0 &&
            program.first_buckets[reduction.step].has(made.unit, made.layer)) {
          EXPECT_TRUE(done[op].contains(maker)) << describe(program, maker);
        }
      }
    }
    EXPECT_EQ(reductions, program.first_buckets.size());
    ASSERT_FALSE(testing::Test::HasFailure()) << "draw " << draw << "\n" << to_text(schedule);
  }
}

TEST(Program, KnowsTheStageOfEveryOp) {
  const Program program = lower(stp_schedule(2, 5), {2, 1, 1, 2}, {});
  for (OpId op = 0; op < program.ops.size(); ++op) {
    const int rank = program.stream_of(op).rank;
    EXPECT_EQ(program.stage_of(op), program.ops[op].chunk == 0 ? rank : 3 - rank);
  }
}

TEST(Program, DescribesItsOpsByRankStreamAndAction) {
  const Program program = lower(two_ranks(), {1, 2}, {Release::chain, BackwardOrder::megatron, true});
  std::set<std::string> texts;
  for (OpId op = 0; op < program.ops.size(); ++op) texts.insert(describe(program, op));
  for (const char* text :
       {"rank 1, compute, mlp.I of B0.0, layer 1", "rank 1, compute, mlp.W_early of B0.0, layer 1",
        "rank 1, tp, all-reduce of attn.I of B0.0, layer 0", "rank 0, compute, mlp.W of W0.1, layer 0",
        "rank 0, p2p, transfer to rank 1 of F0.1", "rank 1, compute, head.F of F0.1",
        "rank 0, compute, optimizer"})
    EXPECT_TRUE(texts.contains(text)) << text;
}

// ---- refusals ----

TEST(Lower, RefusesAnyOtherNumberOfLayersPerChunkThanThereAreVirtualStages) {
  for (const size_t entries : {0, 3, 5, 8})
    EXPECT_THAT(refusal([&] { lower(stp_schedule(2, 5), std::vector<int>(entries, 1), {}); }),
                AllOf(StartsWith("layers_per_chunk: has " + std::to_string(entries) + " entries"),
                      HasSubstr("2 ranks"), HasSubstr("2 chunk"), HasSubstr("; write 4 entries")));
}

TEST(Lower, RefusesNegativeAndHugeNumbersOfLayers) {
  const Schedule one = by_hand(Placement::loop(1, 1), 1, {{"F0.0", "B0.0"}});
  for (const int layers : {-1, 32768, 2147483647})
    EXPECT_THAT(refusal([&] { lower(one, {layers}, {}); }),
                AllOf(StartsWith("layers_per_chunk: " + std::to_string(layers) + " is out of range"),
                      HasSubstr("32767")));
  const Program program = lower(one, {32767}, {});
  EXPECT_EQ(program.ops.size(), 32767U * 2 * 2 + 1 + 32767U * 2 * 3 + 2);
  EXPECT_EQ(program.ops[program.ops.size() - 1].layer, 0);
}

TEST(Lower, RefusesAProgramOfTooManyOpsBeforeItMakesThem) {
  Schedule schedule{"long", Placement::loop(1, 1), 300, {{}}};
  for (int m = 0; m < schedule.microbatches; ++m)
    for (const Pass pass : {Pass::F, Pass::B}) schedule.ranks[0].emplace_back(Action{pass, 0, m});
  // 327 673 ops a microbatch: 204 of them fit.
  EXPECT_THAT(refusal([&] { lower(schedule, {32767}, {}); }),
              AllOf(StartsWith("microbatches: "),
                    HasSubstr("more than " + std::to_string(kMaxOps) + " ops; use fewer")));
}

}  // namespace
}  // namespace stp
