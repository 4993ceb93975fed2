// Post-validation: steps that were undone leave the weights of a step that waited for the norm; and the time
// of a step is the longest span of a rank, as published.
#include <gtest/gtest.h>

#include <optional>

#include "mutations/mutated_backend.h"
#include "stp/cost/cost_table.h"
#include "stp/simulate/simulate.h"
#include "support/effort.h"
#include "support/golden.h"
#include "support/training.h"

namespace stp {
namespace {

using namespace testing_support;

// ---- run ----

struct ClippedCase {
  std::string schedule;
  int tp = 1, dp = 1;
  double clip_norm = 0.2;
  Variant variant = {};
  DType type = DType::f64;
  int pp = 2;
};

OnCpu run_of(const ClippedCase& c, bool post_validation, const std::optional<Mutation>& mutation = {}) {
  const Schedule schedule = make_schedule(find_generator(c.schedule), {c.pp, 6});
  const int stages = schedule.placement.stages();
  Variant variant = c.variant;
  variant.post_validation = post_validation;
  auto [training, program] =
      prepare(schedule, {.tp = c.tp, .cp = c.variant.context_parallel, .dp = c.dp, .pp = c.pp}, c.type,
              variant, layers_of_stages(stages, 4 / stages, variant), /*seq=*/8);
  // The epsilon keeps Adam from magnifying the last bits of small gradients.
  training.optimizer = {
      .learning_rate = 0.01, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-3, .weight_decay = 0.1};
  training.clip_norm = c.clip_norm;
  if (mutation) return mutated(training, std::move(program), *mutation, true);
  return {training, std::move(program), {.deadline_s = 20, .poison = true}};
}

// Trains with tokens of the given seeds, one step each.
void steps(OnCpu& run, std::initializer_list<uint32_t> seeds) {
  for (const uint32_t seed : seeds) run.step(seed);
}
// Bytes that each rank holds.
std::vector<size_t> held_by(OnCpu& run) {
  std::vector<size_t> held;
  for (const int rank : run.backend->ranks()) held.push_back(run.backend->device(rank).memory().held());
  return held;
}

std::vector<ClippedCase> cases(double clip_norm) {
  std::vector<ClippedCase> all;
  for (const char* schedule : {"stp", "zb-v", "1f1b-i", "1f1b", "dualpipev"})
    for (const int tp : {1, 2})
      for (const int dp : {1, 2})
        for (const bool sharded : {false, true}) {
          if (sharded && tp * dp == 1) continue;
          all.push_back({schedule, tp, dp, clip_norm, {.sequence_parallel = tp > 1 && sharded}});
          all.back().variant.zero = dp > 1 && sharded;
        }
  for (const char* schedule : {"stp", "1f1b"})
    all.push_back(
        {schedule, 1, 2, clip_norm, {.recompute = {.layer = true}, .zero = true, .context_parallel = 2}});
  for (const int tp : {1, 2})
    all.push_back({"stp",
                   tp,
                   1,
                   clip_norm,
                   {.sequence_parallel = tp > 1, .context_parallel = 2, .cp_method = CpMethod::all_to_all}});
  for (const char* schedule : {"stp", "zb-v"})
    all.push_back({schedule, 2, 1, clip_norm, {.vision_layers = 2}});
  for (const char* schedule : {"stp", "gpipe"}) all.push_back({schedule, 1, 1, clip_norm, {.offload = 0.7}});
  all.push_back({"stp", 2, 1, clip_norm, {.sequence_parallel = true, .overlapped = 2}});
  for (const int pp : {1, 4}) all.push_back({"1f1b", 2, 1, clip_norm, {}, DType::f64, pp});
  for (const bool zero : {false, true})
    all.push_back({"stp", 2, 2, clip_norm, {.sequence_parallel = zero, .zero = zero, .bucket_size = 1}});
  return all;
}
std::string title(const ClippedCase& c) {
  return c.schedule + " pp " + std::to_string(c.pp) + " tp " + std::to_string(c.tp) + " dp " +
         std::to_string(c.dp) + " " + to_string(c.variant);
}

TEST(PostValidation, StepsThatAreClippedLaterAreThoseOfASynchronousStep) {
  Sample sampled;
  for (const ClippedCase& c : cases(0.2)) {
    if (!sampled()) continue;
    OnCpu late = run_of(c, true), at_once = run_of(c, false);
    for (const uint32_t seed : {1, 2, 3, 4})
      EXPECT_NEAR(late.step(seed).loss, at_once.step(seed).loss, 1e-12) << title(c) << ", step " << seed;
    EXPECT_LE(gradient_error(late.trainer.weights(), at_once.trainer.weights()), 1e-12) << title(c);
  }
}

// What the forwards of an undone step have left is released with it.
TEST(PostValidation, StepsThatAreUndoneHoldNoMemory) {
  Sample sampled;
  for (const ClippedCase& c : cases(1e-9)) {  // no step stands
    if (c.pp != 2 || c.type != DType::f64 || !sampled()) continue;
    OnCpu late = run_of(c, true);
    steps(late, {1, 2});
    const std::vector<size_t> held = held_by(late);
    steps(late, {3, 4});
    EXPECT_EQ(held_by(late), held) << title(c);
  }
}

TEST(PostValidation, WithoutClippingNotABitDiffers) {
  Sample sampled;
  for (ClippedCase c : cases(1e6))
    for (const DType type : {DType::f64, DType::bf16}) {
      if (!sampled()) continue;
      c.type = type;
      OnCpu late = run_of(c, true), at_once = run_of(c, false);
      steps(late, {1, 2, 3});
      steps(at_once, {1, 2, 3});
      EXPECT_EQ(late.trainer.weights(), at_once.trainer.weights()) << title(c);
      EXPECT_EQ(late.trainer.masters(), at_once.trainer.masters()) << title(c);
    }
}

TEST(PostValidation, MastersOfBf16AreUndoneToo) {
  for (const bool zero : {false, true}) {
    const ClippedCase c{"zb-v", 2, 2, 0.2, {.sequence_parallel = true, .zero = zero}, DType::bf16};
    OnCpu late = run_of(c, true), at_once = run_of(c, false);
    steps(late, {1, 2, 3});
    steps(at_once, {1, 2, 3});
    EXPECT_LE(gradient_error(late.trainer.masters(), at_once.trainer.masters()), 1e-6) << title(c);
    EXPECT_LE(gradient_error(late.trainer.weights(), at_once.trainer.weights()), 1e-2) << title(c);
  }
}

// A step whose gradients are NaN is undone on all ranks, whichever the NaN is on: as if there had been none.
TEST(PostValidation, AStepThatIsNotFiniteIsUndone) {
  Sample sampled;
  for (const bool last : {false, true})
    for (const ClippedCase& c : cases(last ? 1e6 : 0.2)) {
      if (c.variant.vision_layers > 0) continue;  // a backend with a bug has no kernels for these
      if (!sampled()) continue;
      SCOPED_TRACE(title(c) + (last ? ", the last step" : ""));
      bool spoil = false;
      const int64_t of_head = int64_t{small_model(1).vocab} / c.tp * small_model(1).hidden;
      OnCpu late = run_of(c, true, Mutation{.spoiled_gradient = [&](const TensorView& gradient) {
                            return spoil && gradient.elements() == of_head;
                          }});
      OnCpu at_once = run_of(c, false);
      late.step(1);
      at_once.step(1);
      spoil = true;
      late.step(2);
      spoil = false;
      if (last) {
        EXPECT_THROW(late.trainer.weights(), NotFinite);
      } else {
        EXPECT_THROW(late.step(3), NotFinite);
        for (const uint32_t seed : {4, 5}) EXPECT_NEAR(late.step(seed).loss, at_once.step(seed).loss, 1e-12);
      }
      EXPECT_LE(gradient_error(late.trainer.weights(), at_once.trainer.weights()), 1e-12);
    }
}

TEST(PostValidation, WithoutTheWayBackWeightsAreWrong) {
  const ClippedCase c{"zb-v", 2, 1};
  OnCpu late = run_of(c, true, Mutation{.no_copies = true}), at_once = run_of(c, false);
  steps(late, {1, 2});
  steps(at_once, {1, 2});
  EXPECT_GT(gradient_error(late.trainer.weights(), at_once.trainer.weights()), 1e-4);
}

TEST(PostValidation, ANormThatDoesNotSeeAllRanksClipsWrongly) {
  const ClippedCase c{"stp", 2, 1};
  OnCpu late = run_of(c, true, Mutation{.dropped_group = "model"}), at_once = run_of(c, false);
  steps(late, {1, 2});
  steps(at_once, {1, 2});
  EXPECT_GT(gradient_error(late.trainer.weights(), at_once.trainer.weights()), 1e-6);
}

// ---- simulated ----

struct Simulated {
  Timeline once, repeated;
};
// One layer a chunk; `costs` are of one.
Simulated simulated(Schedule schedule, const PassCosts& costs) {
  CostTable table;
  table.at(Unit::attn, UnitPass::F) = costs.F;
  table.at(Unit::attn, UnitPass::I) = costs.I;
  table.at(Unit::attn, UnitPass::W_late) = costs.W;
  table.transfer_within_node = table.transfer_between_nodes = costs.p2p;
  const std::vector<int> layers(schedule.placement.stages(), 1);
  const auto program = [&](bool post_validation) {
    return lower(schedule, layers, {.optimizer = true, .strategy = {.post_validation = post_validation}});
  };
  const Program once = program(false), repeated = program(true);
  return {simulate(once, op_seconds(once, table)), simulate_repeated(repeated, op_seconds(repeated, table))};
}

// Zero Bubble (arXiv 2401.10241), section 4: with post-validation ZB-H2's bubble is (p − 1)(F + I − 2W).
TEST(PostValidation, ZbH2HasItsPublishedBubble) {
  for (const PassCosts& costs : {PassCosts{1, 1, 1, 0}, {1, 1, 0.7, 0}, {1.2, 1, 0.8, 0}, {1, 1.2, 0.8, 0}})
    for (int p = 1; p <= 8; ++p)
      for (const int m : {2 * p - 1, 3 * p, 30}) {
        const auto [once, repeated] = simulated(make_schedule(find_generator("zb-h2"), {p, m}), costs);
        const double work = m * (costs.F + costs.I + costs.W);
        EXPECT_NEAR(once.step_s - work, (p - 1) * costs.F, 1e-9) << p << " " << m;
        EXPECT_NEAR(repeated.step_s - work, (p - 1) * (costs.F + costs.I - 2 * costs.W), 1e-9)
            << p << " " << m;
      }
}

// The authors' ZB-V and ZB-2p, whose ranks never idle at equal costs, beside ZB-1p and 1F1B, whose first rank
// is busy from the step's start to its end.
TEST(PostValidation, TheAuthorsZbVAndZb2pNeverIdleAndOthersGainNothing) {
  for (const std::string file : {"zb-v_p4_m16", "zb-v_p8_m32", "zb-2p_p4_m16", "zb-2p_p8_m32", "zb-1p_p4_m16",
                                 "zb-1p_p8_m32", "1f1b_p4_m16", "1f1b-i_p8_m32", "dualpipev_p8_m32"}) {
    const Schedule schedule = golden_orders(file).front().schedule;
    const double work = 3.0 * schedule.microbatches * schedule.chunks();
    const auto [once, repeated] = simulated(schedule, {1, 1, 1, 0});
    const bool never_idles = file.starts_with("zb-v") || file.starts_with("zb-2p");
    EXPECT_GT(once.step_s, work) << file;
    EXPECT_NEAR(repeated.step_s, never_idles ? work : once.step_s, 1e-9) << file;
  }
}

}  // namespace
}  // namespace stp
