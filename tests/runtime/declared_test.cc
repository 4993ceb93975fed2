// What a run does is what is declared: kernels and GEMMs, which lib/stp/model/work.h declares for the suite;
// then the Program's ops, what they send, and bytes.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <tuple>

#include "stp/base/data.h"
#include "stp/cost/cost_table.h"
#include "stp/cost/hardware.h"
#include "stp/cpu/cpu_stream.h"
#include "stp/program/issue_order.h"
#include "stp/runtime/gemm_calls.h"
#include "stp/simulate/simulate.h"
#include "support/effort.h"
#include "support/forwarding_kernels.h"
#include "support/programs.h"
#include "support/training.h"

namespace stp {
namespace {

using namespace testing_support;

// Transposed operands, m, n, k, and the type of the result.
using GemmKey = std::tuple<bool, bool, int64_t, int64_t, int64_t, DType>;
GemmKey key_of(const kernel::Gemm& gemm) {
  const auto [ta, tb, m, n, k] = gemm.shape();
  return {ta, tb, m, n, k, gemm.c.type};
}

// Calls by op. Those of the norm that a collective makes beside it belong to a unit, other kernels of
// collectives and exchanges to none.
class Launches {
 public:
  void add(uint32_t op, const std::string& kernel) {
    const std::lock_guard lock(mutex_);
    ++(kernel.find("norm") == std::string::npos ? others_ : norms_)[op];
  }
  void add(const kernel::Gemm& gemm) {
    const std::lock_guard lock(mutex_);
    gemms_.insert(key_of(gemm));
  }
  [[nodiscard]] const std::set<GemmKey>& gemms() const { return gemms_; }
  [[nodiscard]] int of(OpId id, const Op& op) const {
    const auto count = [&](const std::map<uint32_t, int>& calls) {
      const auto found = calls.find(id);
      return found == calls.end() ? 0 : found->second;
    };
    const bool computes = op.kind == OpKind::compute || op.kind == OpKind::weight_gradients;
    return count(norms_) + (computes ? count(others_) : 0);
  }

 private:
  std::mutex mutex_;
  std::map<uint32_t, int> norms_, others_;
  std::set<GemmKey> gemms_;
};

class CountingKernels : public ForwardingKernels<CountingKernels> {
 public:
  CountingKernels(std::unique_ptr<Kernels> real, Launches& launches)
      : ForwardingKernels(std::move(real)), launches_(launches) {}

  // A task knows its op. What comes before the first op or behind the last is no unit's.
  template <typename Kernel>
  void run_any(Stream& stream, const Kernel& kernel) {
    cpu::CpuStream& on = cpu::cpu_stream(stream);
    on.enqueue([this, &on] {
      if (on.running()) launches_.add(*on.running(), Kernel::name);
    });
    if constexpr (std::is_same_v<Kernel, kernel::Gemm>) launches_.add(kernel);
    real_->issue(stream, kernel);
  }

 private:
  Launches& launches_;
};

struct LaunchCase {
  std::string schedule;
  int tp;
  Variant variant;
};

// By unit, pass and part: of all layers and microbatches.
using Counts = std::map<std::string, int>;

// Of the rank that leads its groups: it has the sums that only one rank of a group makes.
struct Both {
  Counts called, declared;
  std::set<GemmKey> gemms, declared_gemms;  // of all pipeline ranks
};
Both launches_of(const LaunchCase& c) {
  const Schedule schedule = make_schedule(find_generator(c.schedule), {2, 4});
  const int stages = schedule.placement.stages();
  const Prepared prepared =
      prepare(schedule, {.tp = c.tp, .cp = c.variant.context_parallel, .pp = 2}, DType::f32, c.variant,
              layers_of_stages(stages, 4 / stages, c.variant), /*seq=*/8);
  const GridTraining& training = prepared.training;
  const Program& program = prepared.program;
  std::map<const Device*, Launches> launches;
  const auto backend =
      cpu::make_backend({.world_size = training.grid.size(), .deadline_s = 20}, nullptr,
                        [&](std::unique_ptr<Kernels> kernels, Device& device) {
                          return std::make_unique<CountingKernels>(std::move(kernels), launches[&device]);
                        });
  {
    Trainer trainer(*backend, program, training);
    trainer.step(samples_for(program, training));
  }
  const Shape shape = shape_of(training, c.variant);
  Both counts;
  for (int pp = 0; pp < 2; ++pp) {
    counts.gemms.merge(std::set(launches[&backend->device(training.grid.rank({.pp = pp}))].gemms()));
    for (const UnitGemm& each : gemms_of_rank(program, pp, training.model, shape))
      counts.declared_gemms.insert(key_of(gemm_call(each.gemm, training.type)));
    for (OpId id = program.rank_begin[pp]; id < program.rank_begin[pp + 1]; ++id) {
      const Op& op = program.ops[id];
      const bool computes = op.kind == OpKind::compute || op.kind == OpKind::weight_gradients;
      if (!computes && !is_collective(op.kind)) continue;
      const UnitPass pass = op.unit_pass == UnitPass::W_early ? UnitPass::W_late : op.unit_pass;
      UnitPart part = op.part;  // a collective's norm is of the first part of F, or of the last of I
      if (!computes && program.strategy.divides(op.unit))
        part = pass == UnitPass::F ? UnitPart::before : UnitPart::after;
      const std::string name = to_string(op.unit, pass) + suffix(part);
      counts.called[name] += launches[&backend->device(training.grid.rank({.pp = pp}))].of(id, op);
      if (!computes) continue;
      const auto work_of = [&](UnitPass of) {
        if (op.part == UnitPart::whole)
          return work(training.model, shape, Implementation::suite, op.unit, of).kernels;
        return unit_part_work(training.model, shape, Implementation::suite, op.unit, of, op.part, op.step)
            .kernels;
      };
      counts.declared[name] += work_of(op.unit_pass);
      if (op.kind == OpKind::weight_gradients && has_pass(op.unit, UnitPass::W_early))
        counts.declared[name] += work_of(UnitPass::W_early);
    }
  }
  return counts;
}

std::vector<LaunchCase> cases() {
  std::vector<LaunchCase> all;
  for (const char* schedule : {"stp", "zb-v"})
    for (const int tp : {1, 2})
      for (const bool sequence_parallel : {false, true})
        for (const auto& [name, recompute] : kRecomputes)
          if (tp > 1 || !sequence_parallel)
            all.push_back({schedule, tp, {.sequence_parallel = sequence_parallel, .recompute = recompute}});
  for (const CpMethod method : kCpMethods)
    for (const auto& [name, recompute] : kRecomputes)
      all.push_back({"stp", 1, {.recompute = recompute, .context_parallel = 2, .cp_method = method}});
  for (const int cp : {1, 2})
    for (const auto& [name, recompute] : kRecomputes)
      all.push_back({"stp",
                     2,
                     {.order = BackwardOrder::megatron,
                      .sequence_parallel = true,
                      .recompute = recompute,
                      .context_parallel = cp,
                      .overlapped = 2}});
  all.push_back({"1f1b", 2, {.vision_layers = 2}});
  for (const Variant& model : of_other_models())
    for (const int overlapped : {1, 2})
      for (Variant variant : {Variant{}, {.recompute = kRecomputes[6].choice}}) {
        variant.model = model.model;
        variant.positions = model.positions;
        variant.sequence_parallel = overlapped > 1;
        variant.overlapped = overlapped;
        all.push_back({"stp", 2, variant});
      }
  return all;
}

TEST(Launches, OfTheSuiteAreTheKernelsThatTheRuntimeCalls) {
  Sample sampled;
  for (const LaunchCase& c : cases()) {
    if (!sampled()) continue;
    const Both of = launches_of(c);
    EXPECT_EQ(of.called, of.declared) << c.schedule << " tp " << c.tp << " " << to_string(c.variant);
    EXPECT_EQ(of.gemms, of.declared_gemms) << c.schedule << " tp " << c.tp << " " << to_string(c.variant);
  }
}

// One Program, two interpreters: every op of every option is simulated and has a cost. Each is run, too, by
// the cases of parity_test.cc.

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

// When a rank uses the memory of what it has sent again: where the Program puts the transfer first anyway.

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

// Bytes beyond those that checked_step.cc compares: of options beside each other, and by hand.

using namespace testing_support;

// Of each rank in a step.
std::vector<Traffic> traffic_of(const std::string& schedule, int m, int layers, GridTraining training,
                                const Variant& variant) {
  divide_samples(training, variant);
  OnCpu run(training, program_of(schedule, training.grid, m, layers, variant));
  run.step();
  std::vector<Traffic> traffic;
  for (const RankUse& use : run.trainer.use()) traffic.push_back(use.traffic);
  return traffic;
}

TEST(Bytes, OfHalvesMoveAsManyAsWholeMicrobatches) {
  Sample sampled;
  for (const Generator* generator : generators())
    for (const bool sequence_parallel : {false, true})
      for (const Release release : {Release::chain, Release::released}) {
        if (!sampled() || shares_vocabulary(make_schedule(*generator, {2, 4}))) continue;
        const int layers = 2 * generator->chunks;
        auto training = small_training(layers, DType::f64, {.tp = 2, .pp = 2});
        training.seq = 8;
        Variant variant{.release = release, .sequence_parallel = sequence_parallel};
        const auto whole = traffic_of(generator->name, 4, layers, training, variant);
        variant.halves = true;
        SCOPED_TRACE(std::string(generator->name) + ", " + to_string(variant));
        const auto halves = traffic_of(generator->name, 4, layers, training, variant);
        for (size_t rank = 0; rank < whole.size(); ++rank) expect_same_traffic(halves[rank], whole[rank]);
      }
}

// A ring's t − 1 exchanges send (t − 1)/t of what they gather; pieces add up to what they are pieces of.
TEST(Bytes, OfOverlappedUnitsAreThoseOfTheirGathersAndScatters) {
  for (const int tp : {2, 4}) {
    const int layers = 4, m = 4;
    const auto training = small_training(layers, DType::f32, {.tp = tp});
    const auto traffic = [&](int overlapped_ranks) {
      return traffic_of("zb-v", m, layers, training,
                        {.sequence_parallel = true, .overlapped = overlapped_ranks})[0];
    };
    const Traffic plain = traffic(1), overlapped = traffic(tp);
    const int64_t tensor =
        int64_t{training.microbatch_size} * training.seq * training.model.hidden * int64_t{sizeof(float)};
    const int64_t gathers = int64_t{2} * 2 * layers * m;  // of attn and mlp, in F and I
    EXPECT_EQ(overlapped.exchanged_bytes, gathers * tensor * (tp - 1) / tp);
    EXPECT_EQ(plain.all_gather_bytes - overlapped.all_gather_bytes, gathers * tensor / tp);
    EXPECT_EQ(overlapped.reduce_scatter_bytes, plain.reduce_scatter_bytes);
  }
}

// By hand, of one rank with one layer and three microbatches, all forwards first. Columns of 12 rows.
TEST(Bytes, RecomputedTensorsAreHeldFromTheirInputGradientOn) {
  const ModelConfig model = small_model(1);
  const int h = model.hidden, f = model.ffn, q = model.q_heads * model.head_dim,
            qkv = q + 2 * model.kv_heads * model.head_dim;
  const int head = h + 1 + h + model.vocab;  // its norm's input, statistics and output; the logits
  const int norm = 1 + h, mlp = 2 * f + f,   // made again: statistics and output; gate, up, activation
      attn = qkv + q + model.q_heads;        // and QKV, the core's output and log-sum-exps
  const int mlp_gradients = 2 * f + h, attn_gradients = qkv + h;
  const auto peak = [&](const Recompute& recompute) {
    const auto training = small_training(1, DType::f32, {});
    OnCpu run(training, program_of("gpipe", training.grid, 3, 1, {.recompute = recompute}));
    run.step();
    return static_cast<double>(run.trainer.use()[0].peak_bytes.at("saved")) / (sizeof(float) * 12);
  };
  const auto expected = [&](int of_attn, int of_mlp, int attn_again, int mlp_again) {
    const int others = 2 * (of_attn + of_mlp + head);  // the two other microbatches
    const int during_mlp = of_attn + of_mlp + mlp_again + mlp_gradients;
    const int during_attn = of_attn + attn_again + attn_gradients;  // the MLP's are gone
    return std::max({others + of_attn + of_mlp + head, others + during_mlp, others + during_attn});
  };
  const int unit = h + norm;
  EXPECT_EQ(peak({}), expected(unit + attn, unit + mlp, 0, 0));
  EXPECT_EQ(peak({.mlp = true, .activation = true}), expected(unit + attn, unit, 0, mlp));
  EXPECT_EQ(peak({.core = true, .qkv = true, .mlp = true, .activation = true}),
            expected(unit, unit, attn, mlp));
  EXPECT_EQ(peak({.core = true, .qkv = true, .mlp = true, .activation = true, .norm = true}),
            expected(h, h, norm + attn, norm + mlp));
}

}  // namespace
}  // namespace stp
