// The launches and GEMMs that lib/stp/model/work.h declares for the suite are the kernels that the runtime
// calls.
#include <gtest/gtest.h>

#include <map>
#include <mutex>
#include <set>
#include <string>
#include <tuple>

#include "stp/cpu/cpu_stream.h"
#include "stp/runtime/gemm_calls.h"
#include "support/effort.h"
#include "support/forwarding_kernels.h"
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

}  // namespace
}  // namespace stp
