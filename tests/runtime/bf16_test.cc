// Training in bf16: every division of the work is as exact as one rank, masters move as float64's weights do,
// and only tensor parallelism changes the rounding.
#include <gtest/gtest.h>

#include <cmath>
#include <optional>

#include "stp/base/error.h"
#include "support/bf16.h"
#include "support/effort.h"

namespace stp {
namespace {

using namespace testing_support;

struct Step {
  double loss;
  std::map<std::string, std::vector<double>> gradients;
};

std::optional<Step> step_of(const std::string& schedule, const Training& training, int m,
                            const std::vector<TokenSample>& samples) {
  std::optional<Schedule> made;
  try {
    made = make_schedule(find_generator(schedule), {training.grid.pp, m});
  } catch (const InputError&) {
    return {};  // not supported by the method; tested elsewhere
  }
  const int stages = made->placement.stages();
  std::vector<int> layers(stages, training.model.layers / stages);
  layers[0] += training.model.layers % stages;
  const auto backend =
      cpu::make_backend({.world_size = training.grid.size(), .deadline_s = 20, .poison = true});
  Trainer trainer(*backend, execution_program(*made, layers, training.grid.dp), training);
  const double loss = trainer.step(samples).loss;
  return Step{loss, trainer.gradients()};
}

TEST(Bf16, EveryDivisionIsAsExactAsOneRank) {
  Sample sampled;
  for (const int tp : {1, 2, 4})
    for (const int pp : {1, 2, 4})
      for (const int dp : {1, 2}) {
        if (!sampled()) continue;
        const int m = 2 * pp + 2;
        const Training training = small_training(8, DType::bf16, {.tp = tp, .cp = 1, .dp = dp, .pp = pp});
        const auto samples =
            random_samples(m * training.microbatch_size * dp, training.seq, training.model.vocab);
        const auto exact = exact_gradients(training, samples);
        const double one_rank_error =
            gradient_error(gradients_without_pipeline(training, 1, samples), exact.gradients);
        // All activations are rounded as they are here; gradients, which are f32, add up in another order.
        const auto alike = gradients_without_pipeline(training, tp, samples);
        for (const char* schedule : {"stp", "stp-memory", "zb-v", "1f1b", "dualpipev"}) {
          const auto found = step_of(schedule, training, m, samples);
          if (!found) continue;
          const std::string name = std::string(schedule) + " tp " + std::to_string(tp) + " pp " +
                                   std::to_string(pp) + " dp " + std::to_string(dp);
          EXPECT_NEAR(found->loss, exact.loss, 0x1p-8 * exact.loss) << name;
          const double error = gradient_error(found->gradients, exact.gradients);
          EXPECT_TRUE(bf16_parity(error, one_rank_error)) << name << ": " << error << ", " << one_rank_error;
          EXPECT_LE(gradient_error(found->gradients, alike), 1e-5) << name;
          EXPECT_LE(share_in_bf16(found->gradients), 0.01) << name;
        }
      }
}

void expect_masters_follow(bool zero) {
  SCOPED_TRACE(zero ? "ZeRO-1" : "no ZeRO");
  Training training = small_training(4, DType::bf16, {.tp = 2, .cp = 1, .dp = 2, .pp = 2});
  training.optimizer = {
      .learning_rate = 0.01, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 0.1, .weight_decay = 0.1};
  training.clip_norm = 0.2;
  const auto backend =
      cpu::make_backend({.world_size = training.grid.size(), .deadline_s = 20, .poison = true});
  Trainer trainer(
      *backend,
      execution_program(make_schedule(find_generator("stp"), {2, 6}), {1, 1, 1, 1}, 2, {.zero = zero}),
      training);
  const auto start = reference::initial_parameters(training.model, training.initialisation);
  reference::Parameters weights = start;
  reference::AdamWState state;
  for (int step = 1; step <= 4; ++step) {
    const auto samples = random_samples(6 * 2 * 2, training.seq, training.model.vocab, step);
    std::vector<reference::Sample> plain;
    for (const TokenSample& sample : samples) plain.push_back({sample.tokens, sample.targets});
    const auto exact = reference::loss_and_gradients(training.model, weights, plain);
    EXPECT_NEAR(trainer.step(samples).loss, exact.loss, 0x1p-8 * exact.loss) << "step " << step;
    reference::adamw_step({0.01, 0.9, 0.95, 0.1, 0.1, 0.2}, exact.gradients, weights, state);
  }
  const auto masters = trainer.masters(), stored = trainer.weights();
  EXPECT_LE(gradient_error(difference(masters, start), difference(weights, start)), 0.1);
  EXPECT_LE(share_in_bf16(masters), 0.01);
  for (const auto& [name, values] : masters)
    for (size_t i = 0; i < values.size(); ++i)
      ASSERT_EQ(stored.at(name)[i], rounded(values[i])) << name << " " << i;
}

TEST(Bf16, MastersFollowTheReferenceAndWeightsAreMastersRounded) {
  for (const bool zero : {false, true}) expect_masters_follow(zero);
}

}  // namespace
}  // namespace stp
