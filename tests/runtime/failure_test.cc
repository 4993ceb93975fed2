// A failure in one rank ends all ranks with an error that names it; nothing hangs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "mutations/mutated_backend.h"
#include "stp/base/error.h"
#include "support/refusal.h"
#include "support/training.h"

namespace stp {
namespace {

using namespace testing_support;
using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

std::string failure_of(OnCpu& run) {
  return error_of<std::runtime_error>([&] { run.step(); });
}

TEST(Failures, OutOfMemoryNamesRankOpAndMicrobatch) {
  const auto training = small_training(4, DType::f32, {.tp = 2, .pp = 2});
  const Program program = program_of("stp", training.grid, 6, 4);
  // Some rank's weights and half of what it saves at its peak: too little for it, enough to set up.
  size_t limit = 0;
  OnCpu whole(training, program);
  whole.step();
  for (const RankUse& use : whole.trainer.use())
    limit = std::max(limit, use.peak_bytes.at("weights") + use.peak_bytes.at("gradients") +
                                use.peak_bytes.at("optimizer") + use.peak_bytes.at("saved") / 2);
  OnCpu limited(training, program, {.memory_limit = limit});
  EXPECT_THAT(failure_of(limited), AllOf(HasSubstr("out of memory"),
                                         testing::MatchesRegex("rank [02], .* of [FIWB][01]\\.[0-5].*")));
}

// Both ranks of the group need the same, the first earlier, also where work of the whole group is issued.
TEST(Failures, OutOfMemoryInAGroupNamesTheRankThatLacksIt) {
  auto training = small_training(1, DType::f32, {.tp = 2});
  training.seq = 2;
  const Program program = program_of("1f1b", training.grid, 1, 1);
  OnCpu whole(training, program);
  whole.step();
  const size_t most = whole.trainer.use().front().peak_total;
  std::string failures;
  for (size_t less = 1; less < 512; less += 16) {
    OnCpu limited(training, program, {.memory_limit = most - less});
    const std::string failure = failure_of(limited);
    EXPECT_THAT(failure, StartsWith("rank 0, compute, head."));
    failures += failure;
  }
  EXPECT_THAT(failures, HasSubstr("head.F of F0.0: out of memory: 16 bytes")) << "of the statistics";
}

// Two ranks, one layer each.
const RankGrid kTwoRanks{.pp = 2};

// Tokens and targets are uploaded before any op.
TEST(Failures, OutOfMemoryBeforeTheFirstOpNamesNone) {
  const auto training = small_training(2, DType::f32, kTwoRanks);
  const Program program = program_of("1f1b", kTwoRanks, 3, 2);
  size_t set_up = 0;  // of the rank with the targets
  {
    const OnCpu run(training, program);
    set_up = run.backend->device(1).memory().held();
    ASSERT_LE(run.backend->device(0).memory().peak() +
                  3 * training.microbatch_size * training.seq * sizeof(int32_t),
              set_up)
        << "the first rank may not fail";
  }
  OnCpu limited(training, program, {.memory_limit = set_up});
  EXPECT_THAT(failure_of(limited), StartsWith("rank 1, begin of the step: out of memory"));
}

TEST(Failures, ALossThatIsNotFiniteNamesTheHeadsForwardAndTheRunStaysFailed) {
  auto training = small_training(2, DType::f32, kTwoRanks);
  training.initialisation.weight_deviation = 1e30;
  OnCpu run(training, program_of("1f1b", kTwoRanks, 3, 2));
  EXPECT_THAT(failure_of(run), AllOf(HasSubstr("the loss is not finite"), HasSubstr("rank 1, compute"),
                                     HasSubstr("head.F of F0.0")));
  EXPECT_NE(failure_of(run), "");
}

TEST(Failures, BetweenStepsTheirCauseIsKnown) {
  OnCpu run(small_training(2, DType::f32, {}), program_of("1f1b", {}, 1, 2));
  run.backend->guard().fail("rank 1 is lost");
  EXPECT_EQ(error_of<std::runtime_error>([&] { static_cast<void>(run.trainer.gradients()); }),
            "rank 1 is lost");
  EXPECT_EQ(error_of<std::runtime_error>([&] { run.trainer.restore(Trained::weights, [](MatrixShard&) {}); }),
            "rank 1 is lost");
}

TEST(Failures, ABackendOutlivesItsTrainerAndForgetsItsOps) {
  const auto training = small_training(2, DType::f32, {});
  const auto backend = cpu::make_backend({});
  { const Trainer trainer(*backend, program_of("1f1b", {}, 3, 2), training); }
  Device& device = backend->device(0);
  const auto stream = device.make_stream("later", StreamPriority::compute);
  stream->begin(7);
  const Tensor none = device.allocate(*stream, MemoryKind::working, DType::f32, 1, 1);
  device.kernels().issue(*stream, kernel::Fill{none, std::nan("")});
  device.kernels().issue(*stream, kernel::CheckFinite{none, "it"});
  EXPECT_THROW(device.synchronize(), Cancelled);
  EXPECT_THAT(backend->guard().failure(), StartsWith("rank 0, later, op 7: "));
}

// Why a training of two ranks refuses its program.
std::string refused(const GridTraining& training, const std::vector<int>& layers, const Variant& variant) {
  return refusal([&] {
    OnCpu(training,
          execution_program(make_schedule(find_generator("1f1b"), {2, 3}), layers, training.grid, variant));
  });
}

TEST(Failures, AGridThatDoesNotFitIsRefused) {
  const auto backend = cpu::make_backend({.world_size = 3});
  const auto training = small_training(2, DType::f32, {.tp = 2, .pp = 2});
  EXPECT_THROW(Trainer(*backend, program_of("1f1b", training.grid, 3, 2), training), InputError);
}

TEST(Failures, ARingThatDoesNotFitIsRefused) {
  auto training = small_training(2, DType::f32, {.cp = 2, .pp = 2});
  training.seq = 6;
  const auto why = [&](const Variant& variant) { return refused(training, {1, 1}, variant); };
  EXPECT_THAT(why({.context_parallel = 2}), StartsWith("parallel.cp: cannot divide 6 tokens"));
  training.seq = 8;
  EXPECT_EQ(why({.context_parallel = 2}), "");
  const Variant all_to_all{.context_parallel = 2, .cp_method = CpMethod::all_to_all};
  EXPECT_EQ(why(all_to_all), "");
  training.model.kv_heads = 1;
  EXPECT_THAT(why(all_to_all), StartsWith("parallel.cp_method: is all-to-all, and parallel.cp 2 does not "
                                          "divide the 1 key and value heads of small on each of 1"));
}

TEST(Failures, AVisionEncoderThatDoesNotFitIsRefused) {
  auto training = small_training(2, DType::f32, kTwoRanks);
  const auto why = [&](const Variant& variant) { return refused(training, {0, 2}, variant); };
  EXPECT_THAT(why({.vision_layers = 3}), StartsWith("model: has 0 layers of a vision encoder"));
  divide_samples(training, {.vision_layers = 3});
  EXPECT_THAT(why({}), StartsWith("model: has 3 layers of a vision encoder, but the program is for 0"));
  EXPECT_EQ(why({.vision_layers = 3}), "");
  for (const int tokens : {0, 6, 28}) {
    training.vision_tokens = tokens;
    EXPECT_THAT(why({.vision_layers = 3}), StartsWith("vision_tokens: " + std::to_string(tokens)));
  }
}

TEST(Failures, ABackendWithoutKernelsForVisionEncodersSaysSo) {
  auto training = small_training(1, DType::f32, {.pp = 2});
  const Variant variant{.vision_layers = 1};
  divide_samples(training, variant);
  // It has none.
  OnCpu run = mutated(
      training,
      execution_program(make_schedule(find_generator("1f1b"), {2, 3}), {0, 1}, training.grid, variant), {});
  EXPECT_THAT(failure_of(run), HasSubstr("this backend has no kernels for vision encoders"));
}

}  // namespace
}  // namespace stp
