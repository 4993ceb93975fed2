// Seeded bugs in a run in bf16: what its rounding could hide, and what float64 cannot have.
#include <gtest/gtest.h>

#include "mutations/mutated_backend.h"
#include "support/bf16.h"

namespace stp::bf16_mutations_test {
namespace {

using namespace testing_support;

struct Outcome {
  bool parity;          // the gradients are as exact as those of one rank
  bool full_gradients;  // and are kept in f32
  bool full_masters;    // as masters are, which weights are the rounding of
  bool fresh_weights;
};

// One step of tp 2, dp 2, pp 2.
Outcome run(const Mutation& mutation) {
  const auto training = small_training(4, DType::bf16, {.tp = 2, .dp = 2, .pp = 2});
  OnCpu run = mutated(training, program_of("stp", training.grid, 6, 4), mutation);
  run.step();
  const auto samples = run.samples();
  const auto exact = reference::first_step(training.model, training.initialisation, samples);
  const auto gradients = run.trainer.gradients(), weights = run.trainer.weights(),
             masters = run.trainer.masters();
  Outcome outcome{
      bf16_parity(gradient_error(gradients, exact.gradients),
                  gradient_error(gradients_without_pipeline(training, 1, samples), exact.gradients)),
      share_in_bf16(gradients) < 0.01, false, true};
  // A step from a rounded start would have the rounding error.
  const auto start = reference::initial_parameters(training.model, training.initialisation);
  reference::Parameters moved = start;
  reference::AdamWState state;
  const AdamW& o = training.optimizer;
  reference::adamw_step({o.learning_rate, o.beta1, o.beta2, o.epsilon, o.weight_decay, training.clip_norm},
                        gradients, moved, state);
  outcome.full_masters = gradient_error(difference(masters, start), difference(moved, start)) < 0.01;
  for (const auto& [name, values] : masters)
    for (size_t i = 0; i < values.size(); ++i)
      outcome.fresh_weights &= weights.at(name)[i] == rounded(values[i]);
  return outcome;
}

TEST(Bf16Mutations, WithoutABugNothingIsCaught) {
  const Outcome outcome = run({});
  EXPECT_TRUE(outcome.parity);
  EXPECT_TRUE(outcome.full_gradients);
  EXPECT_TRUE(outcome.full_masters);
  EXPECT_TRUE(outcome.fresh_weights);
}

TEST(Bf16Mutations, RoundingHidesNoBugOfTheRuntime) {
  for (const int which : {0, 5, 17}) EXPECT_FALSE(run({.dropped_all_reduce = which}).parity) << which;
  EXPECT_FALSE(run({.dropped_group = "dp"}).parity);
  EXPECT_FALSE(run({.scale = [](double) { return 1.0; }}).parity);
  EXPECT_FALSE(run({.residual = [](double) { return 0.0; }}).parity);
  for (const int which : {0, 3, 11}) EXPECT_FALSE(run({.lost_weight_gradient = which}).parity) << which;
  EXPECT_FALSE(run({.no_bias_gradient = true}).parity);
  EXPECT_FALSE(run({.no_rope_backward = true}).parity);
}

TEST(Bf16Mutations, GradientsSummedInBf16AreSeen) {
  EXPECT_FALSE(run({.narrow_gradients = true}).full_gradients);
}
TEST(Bf16Mutations, MastersInBf16LoseTheStep) { EXPECT_FALSE(run({.narrow_masters = true}).full_masters); }
TEST(Bf16Mutations, WeightsThatDoNotFollowTheirMastersAreSeen) {
  EXPECT_FALSE(run({.stale_weights = true}).fresh_weights);
}

}  // namespace
}  // namespace stp::bf16_mutations_test
