// One Program, two interpreters: every op of every option is simulated and has a cost. Each is run, too, by
// the cases of parity_test.cc.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <tuple>

#include "stp/base/data.h"
#include "stp/cost/cost_table.h"
#include "stp/cost/hardware.h"
#include "stp/simulate/simulate.h"
#include "support/effort.h"
#include "support/programs.h"
#include "support/training.h"

namespace stp {
namespace {

using namespace testing_support;
using Kind = std::tuple<OpKind, Unit, UnitPass, UnitPart, Exchange>;

Kind kind_of(const Op& op) {
  const bool of_unit = op.kind == OpKind::compute || op.kind == OpKind::weight_gradients ||
                       is_collective(op.kind) || op.kind == OpKind::exchange;
  if (!of_unit) return {op.kind, Unit::attn, UnitPass::F, UnitPart::whole, {}};
  // A weight_gradients op is all of its unit's weight gradients, or what is left behind the all-reduce.
  return {op.kind, op.unit, op.kind == OpKind::weight_gradients ? UnitPass::W_late : op.unit_pass, op.part,
          op.exchange};
}

void expect_simulated(const std::string& schedule, const Variant& variant, int dp, std::set<Kind>& seen) {
  SCOPED_TRACE(schedule + ", " + to_string(variant) + ", dp " + std::to_string(dp));
  const bool vision = variant.vision_layers > 0;
  const std::vector<int> layers = vision ? std::vector{0, 2, 1, 0} : std::vector{1, 1, 1, 0};
  const int cp = variant.context_parallel, tp = std::max(2, variant.overlapped);
  const auto [training, program] =
      prepare(make_schedule(find_generator(schedule), {2, 4}), {.tp = tp, .cp = cp, .dp = dp, .pp = 2},
              DType::f32, variant, layers);
  for (const Op& op : program.ops) seen.insert(kind_of(op));

  const Job job{training.model, shape_of(training, variant), Implementation::suite};
  const HardwareProfile profile = read_profile(data_path("profiles/a800.json"));
  const std::vector<double> seconds =
      op_seconds(program, hardware_cost_table(job, profile, program.layers_per_stage,
                                              program.schedule.placement, program.first_buckets));
  const Timeline simulated = simulate(program, seconds, {});

  for (OpId op = 0; op < program.ops.size(); ++op) {
    EXPECT_TRUE(simulated.has(op)) << "not simulated: op " << op;
    EXPECT_GT(seconds[op], 0) << "costs nothing: op " << op;
  }
}

// docs/architecture.md, section 5.
std::set<Kind> all_kinds() {
  std::set<Kind> kinds;
  const auto add = [&](OpKind kind, const std::vector<Unit>& units, const std::vector<UnitPass>& passes,
                       UnitPart part = UnitPart::whole, Exchange exchange = {}) {
    for (const Unit unit : units)
      for (const UnitPass pass : passes) kinds.insert({kind, unit, pass, part, exchange});
  };
  using enum Unit;
  using enum UnitPass;
  const std::vector<Unit> layer{attn, mlp}, of_encoder{vision_attn, vision_mlp, merger};
  for (const auto& units : {layer, of_encoder}) {
    add(OpKind::compute, units, {F, I, W_early, W_late});
    add(OpKind::weight_gradients, units, {W_late});
    add(OpKind::all_reduce, units, {F, I});
  }
  add(OpKind::compute, {embedding, patches, head}, {F});
  add(OpKind::compute, {head}, {I});
  add(OpKind::weight_gradients, {embedding, patches, head}, {W_late});
  add(OpKind::reduce_scatter, layer, {F, I});
  add(OpKind::all_gather, layer, {F, I});
  add(OpKind::all_reduce, {embedding}, {F});
  add(OpKind::reduce_scatter, {embedding}, {F});
  add(OpKind::all_gather, {embedding}, {W_late});
  add(OpKind::all_gather, {head}, {F});
  for (const OpKind kind : {OpKind::transfer, OpKind::gradient_reduce, OpKind::gradient_scatter,
                            OpKind::weight_gather, OpKind::gradient_norm, OpKind::norm_prefix,
                            OpKind::norm_total, OpKind::optimizer, OpKind::offload, OpKind::reload})
    add(kind, {attn}, {F});
  for (const UnitPart part : {UnitPart::before, UnitPart::core, UnitPart::after})
    add(OpKind::compute, layer, {F, I}, part);
  add(OpKind::compute, layer, {F}, UnitPart::norm);
  add(OpKind::reduce_scatter, layer, {F}, UnitPart::after);
  const UnitPart whole = UnitPart::whole;
  add(OpKind::exchange, layer, {F, I}, whole, Exchange::rows);
  for (const Exchange each : {Exchange::kv, Exchange::qkv, Exchange::output})
    add(OpKind::exchange, {attn}, {F, I}, whole, each);
  add(OpKind::exchange, {attn}, {I}, whole, Exchange::kv_gradients);
  return kinds;
}

TEST(SameOps, EveryKindUnderEveryOptionIsSimulated) {
  std::set<Kind> seen;
  Sample sampled;
  for (const char* schedule : {"stp", "zb-v"})
    for (const BackwardOrder order : {BackwardOrder::suite, BackwardOrder::megatron})
      for (const Release release : kReleases)
        for (const bool sequence_parallel : {false, true})
          for (const auto& [name, recompute] : kRecomputes)
            for (const auto& [dp, zero] : {std::pair{1, false}, {2, false}, {2, true}})
              if (sampled())
                expect_simulated(schedule, {order, release, sequence_parallel, recompute, zero}, dp, seen);
  for (const bool zero : {false, true})
    expect_simulated("zb-v", {.sequence_parallel = true, .zero = zero, .post_validation = true}, 2, seen);
  for (const Release release : {Release::chain, Release::released})
    for (const bool sequence_parallel : {false, true})
      expect_simulated("stp", {.release = release, .sequence_parallel = sequence_parallel, .halves = true}, 1,
                       seen);
  for (const size_t first : {0, 1})
    for (const Variant& variant : context_parallel(first))
      expect_simulated("zb-v", variant, variant.context_parallel == 2 ? 2 : 1, seen);
  for (const Variant& variant : with_overlap())
    for (const char* schedule : {"stp", "zb-v"}) expect_simulated(schedule, variant, 1, seen);
  for (const Variant& variant : with_vision())
    for (const char* schedule : {"stp", "zb-v"})
      expect_simulated(schedule, variant, variant.zero ? 2 : 1, seen);
  for (const Variant& variant : with_other_braids()) expect_simulated("stp", variant, 1, seen);
  for (const Variant& variant : with_buckets()) expect_simulated("stp", variant, 2, seen);
  for (const Variant& variant : offloading())
    if (variant.offload == 1) expect_simulated("stp", variant, 2, seen);
  EXPECT_EQ(seen, all_kinds());
}

}  // namespace
}  // namespace stp
