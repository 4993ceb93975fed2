// Training on the CUDA backend, by ranks that share a GPU: in bf16 as exact as one rank of the CPU, in
// float32 as the reference, to the byte what the CPU backend holds. On a GPU; and on the fake runtime
// (cuda_on_host), with the same kernels run by the host, whose streams go on in a random order.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "stp/cuda/cuda_device.h"
#include "support/bf16.h"
#include "support/effort.h"
#include "support/gpu_test.h"
#include "support/saved_memory.h"

namespace stp::cuda {
namespace {

using namespace testing_support;

class GpuTraining : public GpuTest {};

struct Trained {
  double loss;
  std::map<std::string, std::vector<double>> gradients, masters;
  std::vector<RankUse> use;
  std::vector<double> simulated_saved;  // peak bytes by pipeline rank, of the program as it is simulated
};

Trained train(
    Backend& backend, const std::string& schedule, const GridTraining& training, int m,
    const std::vector<TokenSample>& samples, const Variant& variant = {}, int steps = 1,
    const std::function<void()>& before_step = [] {}) {
  Trainer trainer(backend, program_of(schedule, training.grid, m, training.model.layers, variant), training);
  double loss = 0;
  for (int step = 0; step < steps; ++step) {
    before_step();
    loss = trainer.step(samples).loss;
  }
  trainer.finish();
  return {loss, trainer.gradients(), trainer.masters(), trainer.use(),
          peak_saved_bytes(trainer.program(), training.model, shape_of(training, variant),
                           Implementation::suite)};
}

constexpr int kMicrobatches = kStride > 1 ? 2 : 6;

struct Case {
  std::string schedule;
  RankGrid grid;
  Variant variant = {};
};
// Under sanitizers, where kernels on the host take their time, the first alone, of few microbatches.
std::vector<Case> cases() {
  std::vector<Case> all{
      {"stp", {.tp = 2, .pp = 2}},
      {"zb-v", {.tp = 2, .pp = 2}},
      {"1f1b-i", {.dp = 2, .pp = 2}},
      {"1f1b", {.tp = 2}},
      {"stp", {.cp = 2, .pp = 2}, {.context_parallel = 2}},
      {"stp", {.cp = 2, .pp = 2}, {.context_parallel = 2, .cp_method = CpMethod::all_to_all}},
      {"stp", {.tp = 2, .pp = 2}, {.sequence_parallel = true, .overlapped = 2}},
      {"stp", {.pp = 2}, {.offload = 1, .post_validation = true}}};
  if (kStride > 1) all.resize(1);
  return all;
}

std::unique_ptr<Backend> cuda_backend(const GridTraining& training) {
  return cuda::make_backend({.world_size = training.grid.size(), .deadline_s = 60, .poison = true});
}

// As much as the CPU's ranks, and as the Program is simulated.
void expect_same_use(const Case& each, const GridTraining& training, const std::vector<TokenSample>& samples,
                     const Trained& found) {
  const auto cpu = cpu::make_backend({.world_size = training.grid.size()});
  const Trained expected = train(*cpu, each.schedule, training, kMicrobatches, samples, each.variant);
  for (size_t rank = 0; rank < found.use.size(); ++rank) {
    const RankUse &ours = found.use[rank], &theirs = expected.use[rank];
    expect_same_peaks(ours, theirs, {"weights", "gradients", "optimizer", "saved", "host"});
    EXPECT_EQ(static_cast<double>(ours.peak_bytes.at("saved")),
              found.simulated_saved[training.grid.place(ours.world_rank).pp]);
    expect_same_traffic(ours.traffic, theirs.traffic);
  }
}

// Of this device and of the CPU, whose products are summed in another order.
TEST_F(GpuTraining, InBf16IsAsExactAsOneRankAndHoldsAndSendsWhatTheCpuDoes) {
  struct OneRank {
    reference::LossAndGradients exact;
    double of_cpu, of_device;
  };
  std::map<std::pair<int, int>, OneRank> known;  // by replicas and tokens
  for (const Case& each : cases()) {
    SCOPED_TRACE(each.schedule);
    const auto training = small_training(4, DType::bf16, each.grid);
    const auto samples = samples_for(kMicrobatches, training);
    if (!known.contains({each.grid.dp, training.seq})) {
      GridTraining alone = training;
      alone.grid = {};
      const auto one_device = cuda_backend(alone);
      OneRank& one = known[{each.grid.dp, training.seq}];
      one.exact = reference::first_step(training.model, training.initialisation, samples);
      one.of_cpu = gradient_error(gradients_without_pipeline(training, 1, samples), one.exact.gradients);
      one.of_device =
          gradient_error(train(*one_device, "1f1b", alone, kMicrobatches * each.grid.dp, samples).gradients,
                         one.exact.gradients);
    }
    const auto& [exact, of_cpu, of_device] = known.at({each.grid.dp, training.seq});
    const auto backend = cuda_backend(training);
    const Trained found = train(*backend, each.schedule, training, kMicrobatches, samples, each.variant);
    EXPECT_NEAR(found.loss, exact.loss, 0x1p-8 * exact.loss);
    const double error = gradient_error(found.gradients, exact.gradients);
    EXPECT_TRUE(bf16_parity(error, of_device)) << error << ", " << of_device;
    EXPECT_TRUE(bf16_parity(error, of_cpu)) << error << ", " << of_cpu;
    EXPECT_LE(share_in_bf16(found.gradients), 0.02);  // sums; but a token that comes once has but one term
    expect_same_use(each, training, samples, found);
    expect_nothing_left(*backend);
  }
}

TEST_F(GpuTraining, InFloat32EqualsTheReference) {
  std::vector<Case> all = cases();
  for (const Variant& model : of_other_models())
    if (kStride == 1) all.push_back({"stp", {.tp = 2, .pp = 2}, model});
  for (const Case& each : all) {
    SCOPED_TRACE(each.schedule + " " + to_string(each.variant));
    auto training = small_training(4, DType::f32, each.grid);
    divide_samples(training, each.variant);
    const auto samples = samples_for(kMicrobatches, training);
    const auto exact = reference::first_step(training.model, training.initialisation, samples);
    const auto backend = cuda_backend(training);
    const Trained found = train(*backend, each.schedule, training, kMicrobatches, samples, each.variant);
    EXPECT_NEAR(found.loss, exact.loss, 1e-5 * exact.loss);
    EXPECT_LE(gradient_error(found.gradients, exact.gradients), 1e-5);
  }
}

// Steps that build on each other: weights, moments and masters too.
TEST_F(GpuTraining, StepsFollowThoseOfTheCpuAndAreTheSameBitsAgain) {
  auto training = small_training(4, DType::f32, {.tp = 2, .pp = 2});
  training.optimizer.epsilon = 0.1;  // else the first steps divide small gradients by their own size
  const auto samples = samples_for(kMicrobatches, training);
  const int steps = kStride > 1 ? 1 : 2;
  const auto backend = cuda_backend(training), again = cuda_backend(training);
  const auto cpu = cpu::make_backend({.world_size = training.grid.size()});
  const Trained found = train(*backend, "stp", training, kMicrobatches, samples, {}, steps);
  EXPECT_LE(
      gradient_error(found.masters, train(*cpu, "stp", training, kMicrobatches, samples, {}, steps).masters),
      1e-5);
  EXPECT_EQ(found.masters, train(*again, "stp", training, kMicrobatches, samples, {}, steps).masters);
}

// Ops come again and again, with the same kernels: most of them are launched as graphs.
TEST_F(GpuTraining, GraphsChangeNoBitAndTakeMostOfTheWork) {
  const int ranks = kStride > 1 ? 1 : 2;
  const auto training = small_training(4, DType::bf16, {.tp = ranks, .pp = ranks});
  const std::string schedule = ranks > 1 ? "stp" : "1f1b";
  const auto samples = samples_for(kMicrobatches, training);
  const int steps = kStride > 1 ? 3 : 4;
  const auto backend = cuda_backend(training);
  const Trained expected = train(*backend, schedule, training, kMicrobatches, samples, {}, steps);
  const auto graphs =
      cuda::make_backend({.world_size = training.grid.size(), .deadline_s = 60, .graphs = true});
  const auto counts = [&](int rank) { return dynamic_cast<CudaDevice&>(graphs->device(rank)).graphs(); };
  std::vector<GraphCounts> before;
  const Trained found = train(*graphs, schedule, training, kMicrobatches, samples, {}, steps, [&] {
    before.clear();
    for (const int rank : graphs->ranks()) before.push_back(counts(rank));
  });
  EXPECT_EQ(found.loss, expected.loss);
  EXPECT_EQ(found.masters, expected.masters);
  for (const int rank : graphs->ranks()) {
    const GraphCounts all = counts(rank);
    EXPECT_EQ(all.refused, 0U);
    EXPECT_GT(all.in_graphs - before[rank].in_graphs, all.alone - before[rank].alone) << "in the last step";
  }
}

TEST_F(GpuTraining, TimesOfOpsAreInTheOrderOfTheProgram) {
  const auto training = small_training(4, DType::f32, {.tp = 2, .pp = 2});
  const auto samples = samples_for(kMicrobatches, training);
  const auto backend = cuda_backend(training);
  Trainer trainer(*backend, program_of("stp", training.grid, kMicrobatches, 4), training);
  const StepResult step = trainer.step(samples);
  const Program& program = trainer.program();
  ASSERT_EQ(step.times.size(), program.ops.size());
  for (OpId op = 0; op < program.ops.size(); ++op) {
    EXPECT_GE(step.times[op].start, 0);
    EXPECT_LE(step.times[op].start, step.times[op].end);
    EXPECT_LE(step.times[op].end, step.step_s);
  }
}

}  // namespace
}  // namespace stp::cuda
