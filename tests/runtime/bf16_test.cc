// Training in bf16: every division of the work is as exact as one rank, masters move as float64's weights do,
// and only tensor parallelism changes the rounding.
#include <gtest/gtest.h>

#include "support/bf16.h"
#include "support/effort.h"

namespace stp {
namespace {

using namespace testing_support;

TEST(Bf16, EveryDivisionIsAsExactAsOneRank) {
  Sample sampled;
  for (const int tp : {1, 2, 4})
    for (const int pp : {1, 2, 4})
      for (const int dp : {1, 2}) {
        if (!sampled()) continue;
        const int m = 2 * pp + 2;
        const auto training = small_training(8, DType::bf16, {.tp = tp, .dp = dp, .pp = pp});
        const auto samples = samples_for(m, training);
        const auto exact = reference::first_step(training.model, training.initialisation, samples);
        const double one_rank_error =
            gradient_error(gradients_without_pipeline(training, 1, samples), exact.gradients);
        // All activations are rounded as they are here; gradients, which are f32, add up in another order.
        const auto alike = gradients_without_pipeline(training, tp, samples);
        for (const char* schedule : {"stp", "stp-memory", "zb-v", "1f1b", "dualpipev"}) {
          OnCpu run(training, program_of(schedule, training.grid, m, training.model.layers),
                    {.deadline_s = 20, .poison = true});
          const double loss = run.trainer.step(samples).loss;
          const auto gradients = run.trainer.gradients();
          const std::string name = std::string(schedule) + " tp " + std::to_string(tp) + " pp " +
                                   std::to_string(pp) + " dp " + std::to_string(dp);
          EXPECT_NEAR(loss, exact.loss, 0x1p-8 * exact.loss) << name;
          const double error = gradient_error(gradients, exact.gradients);
          EXPECT_TRUE(bf16_parity(error, one_rank_error)) << name << ": " << error << ", " << one_rank_error;
          EXPECT_LE(gradient_error(gradients, alike), 1e-5) << name;
          EXPECT_LE(share_in_bf16(gradients), 0.01) << name;
        }
      }
}

void expect_masters_follow(bool zero) {
  SCOPED_TRACE(zero ? "ZeRO-1" : "no ZeRO");
  auto training = small_training(4, DType::bf16, {.tp = 2, .dp = 2, .pp = 2});
  training.optimizer = {
      .learning_rate = 0.01, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 0.1, .weight_decay = 0.1};
  training.clip_norm = 0.2;
  OnCpu run(training, program_of("stp", training.grid, 6, 4, {.zero = zero}),
            {.deadline_s = 20, .poison = true});
  const auto start = reference::initial_parameters(training.model, training.initialisation);
  PlainTraining plain(training);
  for (int step = 1; step <= 4; ++step) {
    const double exact = plain.step(run.samples(step)).loss;
    EXPECT_NEAR(run.step(step).loss, exact, 0x1p-8 * exact) << "step " << step;
  }
  const auto masters = run.trainer.masters(), stored = run.trainer.weights();
  EXPECT_LE(gradient_error(difference(masters, start), difference(plain.weights(), start)), 0.1);
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
