// A failure in one rank ends all ranks with an error that names it; nothing hangs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "mutations/mutated_backend.h"
#include "stp/base/error.h"
#include "support/refusal.h"
#include "support/training.h"

namespace stp {
namespace {

using namespace testing_support;
using testing::HasSubstr;
using testing::StartsWith;

std::string failure_of(Trainer& trainer, const std::vector<TokenSample>& samples) {
  try {
    trainer.step(samples);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "";
}

TEST(Failures, OutOfMemoryNamesRankOpAndMicrobatch) {
  const Training training = small_training(4, DType::f32, {.tp = 2, .cp = 1, .dp = 1, .pp = 2});
  const auto schedule = [] { return make_schedule(find_generator("stp"), {2, 6}); };
  const auto samples = random_samples(12, training.seq, training.model.vocab);
  // Some rank's weights and half of what it saves at its peak: too little for it, enough to set up.
  size_t limit = 0;
  {
    const auto backend = cpu::make_backend({.world_size = 4});
    Trainer trainer(*backend, execution_program(schedule(), {1, 1, 1, 1}, 1), training);
    trainer.step(samples);
    for (const RankUse& use : trainer.use())
      limit = std::max(limit, use.peak_bytes.at("weights") + use.peak_bytes.at("gradients") +
                                  use.peak_bytes.at("optimizer") + use.peak_bytes.at("saved") / 2);
  }
  const auto backend = cpu::make_backend({.world_size = 4, .memory_limit = limit});
  Trainer trainer(*backend, execution_program(schedule(), {1, 1, 1, 1}, 1), training);
  const std::string failure = failure_of(trainer, samples);
  EXPECT_THAT(failure, HasSubstr("out of memory"));
  EXPECT_THAT(failure, testing::MatchesRegex(".*rank [0-3], .* of [FIWB][01]\\.[0-5].*"));
}

// Tokens and targets are uploaded before any op.
TEST(Failures, OutOfMemoryBeforeTheFirstOpNamesNone) {
  const Training training = small_training(2, DType::f32, {.tp = 1, .cp = 1, .dp = 1, .pp = 2});
  const auto program = [] {
    return execution_program(make_schedule(find_generator("1f1b"), {2, 3}), {1, 1}, 1);
  };
  size_t set_up = 0;  // of the rank with the targets
  {
    const auto backend = cpu::make_backend({.world_size = 2});
    const Trainer trainer(*backend, program(), training);
    set_up = backend->device(1).memory().held();
    ASSERT_LE(backend->device(0).memory().peak() + 3 * training.tokens() * sizeof(int32_t), set_up)
        << "the first rank may not fail";
  }
  const auto backend = cpu::make_backend({.world_size = 2, .memory_limit = set_up});
  Trainer trainer(*backend, program(), training);
  const std::string failure = failure_of(trainer, random_samples(6, training.seq, training.model.vocab));
  EXPECT_THAT(failure, StartsWith("rank 1, begin of the step: out of memory"));
}

TEST(Failures, ALossThatIsNotFiniteNamesTheHeadsForward) {
  Training training = small_training(2, DType::f32, {.tp = 1, .cp = 1, .dp = 1, .pp = 2});
  training.initialisation.weight_deviation = 1e30;
  const auto backend = cpu::make_backend({.world_size = 2});
  Trainer trainer(*backend, execution_program(make_schedule(find_generator("1f1b"), {2, 3}), {1, 1}, 1),
                  training);
  const std::string failure = failure_of(trainer, random_samples(6, training.seq, training.model.vocab));
  EXPECT_THAT(failure, HasSubstr("the loss is not finite"));
  EXPECT_THAT(failure, HasSubstr("rank 1, compute"));
  EXPECT_THAT(failure, HasSubstr("head.F of F0.0"));
}

TEST(Failures, AFailedRunStaysFailed) {
  Training training = small_training(2, DType::f32, {.tp = 1, .cp = 1, .dp = 1, .pp = 2});
  training.initialisation.weight_deviation = 1e30;
  const auto backend = cpu::make_backend({.world_size = 2});
  Trainer trainer(*backend, execution_program(make_schedule(find_generator("1f1b"), {2, 3}), {1, 1}, 1),
                  training);
  const auto samples = random_samples(6, training.seq, training.model.vocab);
  EXPECT_NE(failure_of(trainer, samples), "");
  EXPECT_NE(failure_of(trainer, samples), "");
}

TEST(Failures, AGridThatDoesNotFitIsRefused) {
  const auto backend = cpu::make_backend({.world_size = 3});
  const Training training = small_training(2, DType::f32, {.tp = 2, .cp = 1, .dp = 1, .pp = 2});
  EXPECT_THROW(Trainer(*backend, execution_program(make_schedule(find_generator("1f1b"), {2, 3}), {1, 1}, 1),
                       training),
               InputError);
}

TEST(Failures, ARingThatDoesNotFitIsRefused) {
  const auto backend = cpu::make_backend({.world_size = 4});
  Training training = small_training(2, DType::f32, {.tp = 1, .cp = 2, .dp = 1, .pp = 2});
  training.seq = 6;
  const auto refused = [&](const Variant& variant) {
    return refusal([&] {
      Trainer(*backend, execution_program(make_schedule(find_generator("1f1b"), {2, 3}), {1, 1}, 1, variant),
              training);
    });
  };
  EXPECT_THAT(refused({}), StartsWith("parallel.cp: 2 ranks, but the program is for 1"));
  EXPECT_THAT(refused({.context_parallel = 2}), StartsWith("parallel.cp: cannot divide 6 tokens"));
  training.seq = 8;
  EXPECT_EQ(refused({.context_parallel = 2}), "");
  const Variant all_to_all{.context_parallel = 2, .cp_method = CpMethod::all_to_all};
  EXPECT_EQ(refused(all_to_all), "");
  training.model.kv_heads = 1;
  EXPECT_THAT(refused(all_to_all), StartsWith("parallel.cp_method: is all-to-all, and parallel.cp 2 does not "
                                              "divide the 1 key and value heads of small on each of 1"));
}

TEST(Failures, AVisionEncoderThatDoesNotFitIsRefused) {
  const auto backend = cpu::make_backend({.world_size = 2});
  Training training = small_training(2, DType::f32, {.tp = 1, .cp = 1, .dp = 1, .pp = 2});
  const auto refused = [&](const Variant& variant) {
    return refusal([&] {
      Trainer(*backend, execution_program(make_schedule(find_generator("1f1b"), {2, 3}), {0, 2}, 1, variant),
              training);
    });
  };
  EXPECT_THAT(refused({.vision_layers = 3}), StartsWith("model: has 0 layers of a vision encoder"));
  divide_samples(training, {.vision_layers = 3});
  EXPECT_THAT(refused({}), StartsWith("model: has 3 layers of a vision encoder, but the program is for 0"));
  EXPECT_EQ(refused({.vision_layers = 3}), "");
  for (const int tokens : {0, 6, 28}) {
    training.vision_tokens = tokens;
    EXPECT_THAT(refused({.vision_layers = 3}), StartsWith("vision_tokens: " + std::to_string(tokens)));
  }
}

TEST(Failures, ABackendWithoutKernelsForVisionEncodersSaysSo) {
  Training training = small_training(1, DType::f32, {.tp = 1, .cp = 1, .dp = 1, .pp = 2});
  const Variant variant{.vision_layers = 1};
  divide_samples(training, variant);
  MutatedBackend backend({.world_size = 2, .deadline_s = 20}, {});  // which has none
  Trainer trainer(backend,
                  execution_program(make_schedule(find_generator("1f1b"), {2, 3}), {0, 1}, 1, variant),
                  training);
  EXPECT_THAT(failure_of(trainer, samples_for(trainer.program(), training)),
              HasSubstr("this backend has no kernels for vision encoders"));
}

}  // namespace
}  // namespace stp
