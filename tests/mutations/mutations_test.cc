// Seeded bugs of the runtime, each of which a test's measure must catch: parity with the reference, the
// weights after a step, the bytes held, or an error. The first test shows that without a bug none of them
// does.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <utility>

#include "mutations/mutated_backend.h"
#include "support/saved_memory.h"
#include "support/training.h"

namespace stp {
namespace {

using namespace testing_support;
using testing::HasSubstr;

struct Outcome {
  bool failed = false;  // with an error
  double loss_error = 0, gradient_error = 0, weight_error = 0;
  bool bytes_as_declared = true;

  [[nodiscard]] bool parity() const { return !failed && loss_error < 1e-10 && gradient_error < 1e-10; }
  [[nodiscard]] bool weights() const { return !failed && weight_error < 1e-8; }
};

Program healthy_program() { return program_of("stp", {.tp = 2, .dp = 2, .pp = 2}, 6, 4); }

// The same of sequences that two ranks share by all-to-alls.
Program program_of_heads() {
  return program_of("stp", {.tp = 2, .cp = 2, .pp = 2}, 6, 4,
                    {.context_parallel = 2, .cp_method = CpMethod::all_to_all});
}

// The same of ranks that share the vocabulary, with one barrier or two.
Program program_of_shares(const char* schedule) {
  return program_of(schedule, {.tp = 2, .dp = 2, .pp = 2}, 6, 4);
}

// One step of tp 2, dp 2 (or cp 2), pp 2.
Outcome run(const Mutation& mutation, Program program = healthy_program()) {
  const Strategy strategy = program.strategy;
  auto training = small_training(4, DType::f64, {.tp = 2, .cp = strategy.cp, .dp = 2 / strategy.cp, .pp = 2});
  training.clip_norm = 0.2;
  training.optimizer.weight_decay = 0.1;
  training.optimizer.epsilon = 0.1;  // so that Adam's first step feels how long a gradient is
  Outcome outcome;
  try {
    OnCpu run = mutated(training, std::move(program), mutation);
    PlainTraining plain(training);
    const auto exact = plain.step(run.samples());
    outcome.loss_error = std::abs(run.step().loss / exact.loss - 1);
    outcome.gradient_error = gradient_error(run.trainer.gradients(), exact.gradients);
    outcome.weight_error = gradient_error(run.trainer.weights(), plain.weights());
    Shape shape = shape_of(training, {.context_parallel = strategy.cp, .cp_method = strategy.cp_method});
    shape.shares_vocabulary = shares_vocabulary(run.trainer.program().schedule);
    const auto saved = peak_saved_bytes(run.trainer.program(), training.model, shape, Implementation::suite);
    for (const RankUse& use : run.trainer.use())
      outcome.bytes_as_declared &=
          static_cast<double>(use.peak_bytes.at("saved")) == saved[training.grid.place(use.world_rank).pp];
  } catch (const std::exception&) {
    outcome.failed = true;
  }
  return outcome;
}

TEST(Mutations, WithoutABugNothingIsCaught) {
  for (const Program& program :
       {healthy_program(), program_of_heads(), program_of_shares("vocab-1"), program_of_shares("vocab-2")}) {
    const Outcome outcome = run({}, program);
    EXPECT_TRUE(outcome.parity());
    EXPECT_TRUE(outcome.weights());
    EXPECT_TRUE(outcome.bytes_as_declared);
  }
}

TEST(Mutations, SharesOfTheVocabularyThatDoNotMeetBreakParity) {
  const std::function<int64_t(int64_t)> next = [](int64_t first) { return first + 1; };
  for (const char* schedule : {"vocab-1", "vocab-2"})
    for (const Mutation& mutation : {Mutation{.dropped_group = "vocabulary"},
                                     {.dropped_group = "vocabulary inside ops"},
                                     {.first_entry = next},
                                     {.own_statistics = true}})
      EXPECT_FALSE(run(mutation, program_of_shares(schedule)).parity()) << schedule;
}

// Of the first layer's F and of the last one's I: before the core, and behind it.
TEST(Mutations, ADroppedAllToAllBreaksParity) {
  constexpr int kAll = 6 * 2 * 4;  // microbatches, layers of a rank
  for (const int which : {0, 1, kAll - 2, kAll - 1})
    EXPECT_FALSE(run({.dropped_exchange = which}, program_of_heads()).parity()) << which;
}
TEST(Mutations, HeadsThatGoToAnotherRankBreakParity) {
  EXPECT_FALSE(run({.swapped_heads = true}, program_of_heads()).parity());
}

TEST(Mutations, ADroppedAllReduceBreaksParity) {
  for (const int which : {0, 5, 17}) EXPECT_FALSE(run({.dropped_all_reduce = which}).parity()) << which;
}
TEST(Mutations, ALostWeightGradientBreaksParity) {
  for (const int which : {0, 3, 11}) EXPECT_FALSE(run({.lost_weight_gradient = which}).parity()) << which;
}
TEST(Mutations, OtherBugsOfABackwardOrForwardBreakParity) {
  const std::function<double(double)> none = [](double) { return 0.0; }, whole = [](double) { return 1.0; };
  const std::pair<const char*, Mutation> bugs[] = {
      {"a head that does not reduce", {.dropped_group = "tp inside ops"}},
      {"a forgotten gradient reduction", {.dropped_group = "dp"}},
      {"a residual not divided by t", {.scale = whole}},
      {"a residual gradient not divided by t", {.residual = whole}},
      {"a lost residual gradient", {.residual = none}},
      {"gradients that do not add up", {.overwrite_gradients = true}},
      {"an input freed before W", {.early_free = true}},
      {"a missing bias gradient", {.no_bias_gradient = true}},
      {"a rotation not undone", {.no_rope_backward = true}},
      {"samples that see each other", {.causal_leak = true}},
      {"a wrong share of the vocabulary", {.first_entry = [](int64_t first) { return first + 1; }}}};
  for (const auto& [bug, mutation] : bugs) EXPECT_FALSE(run(mutation).parity()) << bug;
}
TEST(Mutations, ANormOfOneRankAloneClipsWrongly) {
  const Outcome outcome = run({.dropped_group = "model"});
  EXPECT_TRUE(outcome.parity()) << "gradients are compared before they are clipped";
  EXPECT_FALSE(outcome.weights());
}
TEST(Mutations, AWrongBiasCorrectionMovesTheWeights) { EXPECT_FALSE(run({.step_offset = 1}).weights()); }
TEST(Mutations, OneMoreTensorKeptIsSeenInTheBytes) {
  EXPECT_FALSE(run({.keep_saved = true}).bytes_as_declared);
}

// Bugs in the Program, the executor's input.
TEST(Mutations, SwappedSendsBreakParity) {
  Program program = healthy_program();
  std::vector<OpId> sends;  // of one kind over one link: same shapes, other microbatches
  for (OpId op = program.rank_begin[0]; op < program.rank_begin[1]; ++op)
    if (program.ops[op].kind == OpKind::transfer && program.ops[op].pass == Pass::F) sends.push_back(op);
  ASSERT_GE(sends.size(), 2U);
  // The first tensor to arrive is used as the second.
  std::swap(program.ops[sends[0]].microbatch, program.ops[sends[1]].microbatch);
  for (OpId op = program.rank_begin[1]; op < program.rank_begin[2]; ++op)
    if (program.ops[op].kind == OpKind::compute && program.ops[op].chunk == 0 &&
        program.ops[op].pass == Pass::F && program.ops[op].layer == 0 && program.ops[op].unit == Unit::attn &&
        program.ops[op].microbatch < 2)
      program.ops[op].microbatch = 1 - program.ops[op].microbatch;
  EXPECT_FALSE(run({}, std::move(program)).parity());
}

TEST(Mutations, AWaitForAnOpThatNeverComesEndsInAnError) {
  Program program = healthy_program();
  // The first op of rank 0 waits for the last of rank 1: a cycle, refused before anything starts.
  ASSERT_TRUE(program.dependencies(0).empty());
  program.depends.insert(program.depends.begin(), program.rank_begin[2] - 1);
  for (size_t op = 1; op < program.depends_begin.size(); ++op) ++program.depends_begin[op];
  EXPECT_TRUE(run({}, std::move(program)).failed);
}

TEST(Mutations, AMissingDependencyEndsInAnErrorOrBreaksParity) {
  Program program = healthy_program();
  // An op of rank 1 no longer waits for what rank 0 sends it.
  for (OpId op = program.rank_begin[1]; op < program.rank_begin[2]; ++op) {
    const uint32_t begin = program.depends_begin[op];
    if (program.dependencies(op).empty() || program.ops[program.depends[begin]].kind != OpKind::transfer ||
        program.stream_of(program.depends[begin]).rank != 0)
      continue;
    program.depends.erase(program.depends.begin() + begin);
    for (size_t later = op + 1; later < program.depends_begin.size(); ++later) --program.depends_begin[later];
    break;
  }
  EXPECT_FALSE(run({}, std::move(program)).parity());
}

// ---- offload ----

// One rank, one layer, all forwards first: each microbatch's eleven tensors go to the host and back.
constexpr int kOffloaded = 6, kTensors = 11;

Program offloading_program() { return program_of("gpipe", {}, kOffloaded, 1, {.offload = 1}); }

// `program` where ops of kind `of` do not wait for those of kind `needed`.
Program without_waits(const Program& program, OpKind of, OpKind needed) {
  Program lacking = program;
  lacking.depends.clear();
  for (OpId op = 0; op < program.ops.size(); ++op) {
    lacking.depends_begin[op] = static_cast<OpId>(lacking.depends.size());
    for (const OpId each : program.dependencies(op))
      if (program.ops[op].kind != of || program.ops[each].kind != needed) lacking.depends.push_back(each);
  }
  lacking.depends_begin.back() = static_cast<OpId>(lacking.depends.size());
  return lacking;
}

// "" if the gradients are those of the reference; else what is wrong.
std::string offload_fails(const Program& program, const Mutation& mutation) {
  const auto training = small_training(1, DType::f64, {});
  try {
    OnCpu run = mutated(training, program, mutation, true);
    run.step();
    const auto exact = reference::first_step(training.model, training.initialisation, run.samples());
    if (gradient_error(run.trainer.gradients(), exact.gradients) > 1e-10) return "other gradients";
    return run.backend->device(0).memory().held(MemoryKind::saved) > 0 ? "memory is not freed" : "";
  } catch (const std::exception& error) {
    return error.what();
  }
}

TEST(OffloadMutations, WithoutABugNothingIsCaught) { EXPECT_EQ(offload_fails(offloading_program(), {}), ""); }

#ifndef __SANITIZE_THREAD__  // these race
// A late copy's memory is filled with NaN, which reaches the gradients, or has what was there before.
constexpr auto kCaught = [] { return testing::AnyOf(HasSubstr("gradients' norm"), "other gradients"); };
TEST(OffloadMutations, ABackwardThatDoesNotWaitForItsReloadReadsRubbish) {
  const Mutation late{.late_copy = (kOffloaded - 1) * kTensors};
  const Program lacking = without_waits(offloading_program(), OpKind::compute, OpKind::reload);
  EXPECT_THAT(offload_fails(lacking, late), kCaught());
}
TEST(OffloadMutations, AnOffloadThatDoesNotWaitForItsForwardTakesRubbish) {
  const Program lacking = without_waits(offloading_program(), OpKind::offload, OpKind::compute);
  EXPECT_THAT(offload_fails(lacking, {.late_forward = kTensors}), kCaught());
}
#endif
// The op that waits for the copy is the one that frees: without the wait nothing reuses the memory.
TEST(OffloadMutations, MemoryWhoseCopyNoOpWaitsForIsNotFreed) {
  const Program lacking = without_waits(offloading_program(), OpKind::compute, OpKind::offload);
  EXPECT_EQ(offload_fails(lacking, {}), "memory is not freed");
}

// ---- buckets ----

// Two replicas of one rank: embedding, two layers and the head, each unit a bucket of its own.
constexpr int kMicrobatches = 2, kBuckets = 6, kWeightGradients = 9;  // GEMMs of a microbatch

Program program_in_buckets() { return program_of("gpipe", {.dp = 2}, kMicrobatches, 2, {.bucket_size = 1}); }

// `program` where each bucket's reduction waits for what the bucket before it waits for.
[[maybe_unused]] Program one_unit_early(Program program) {
  OpId before = 0;
  for (OpId op = 0; op < program.ops.size(); ++op)
    if (program.ops[op].kind == OpKind::gradient_reduce) {
      OpId& waits_for = program.depends[program.depends_begin[op]];
      before = std::exchange(waits_for, before == 0 ? waits_for : before);
    }
  return program;
}

double error_of_gradients(const Program& program, const Mutation& mutation) {
  const auto training = small_training(2, DType::f64, {.dp = 2});
  OnCpu run = mutated(training, program, mutation);
  run.step();
  return gradient_error(
      run.trainer.gradients(),
      reference::first_step(training.model, training.initialisation, run.samples()).gradients);
}

TEST(BucketMutations, WithoutABugNothingIsCaught) {
  EXPECT_EQ(program_in_buckets().first_buckets.size(), kBuckets);
  EXPECT_LE(error_of_gradients(program_in_buckets(), {}), 1e-10);
}
#ifndef __SANITIZE_THREAD__  // this races
// The last GEMM is of the first layer's attention, in the last bucket but one.
TEST(BucketMutations, AReductionThatWaitsForTheUnitBeforeItsOwnLosesGradients) {
  const Mutation late{.late_weight_gradient = kMicrobatches * kWeightGradients - 1,
                      .reductions_before_it = kBuckets - 1};
  EXPECT_GT(error_of_gradients(one_unit_early(program_in_buckets()), late), 1e-3);
}
#endif

}  // namespace
}  // namespace stp
