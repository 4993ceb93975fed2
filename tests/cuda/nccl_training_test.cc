// Training by one process per GPU over NCCL, without either: processes are threads, each with its own
// backend; NCCL's calls meet in the fake runtime's memory, whose streams go on in a random order and stand
// still until all members of a call have come to it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <mutex>

#include "stp/cuda/nccl/nccl_backend.h"
#include "support/effort.h"
#include "support/fake_cuda.h"
#include "support/fake_nccl.h"
#include "support/processes_as_threads.h"
#include "support/refusal.h"
#include "support/training.h"

namespace stp::cuda {
namespace {

using namespace testing_support;
using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

struct Trained {
  double loss = 0;
  std::map<std::string, std::vector<double>> gradients;
  std::vector<RankUse> use;           // by rank
  std::vector<std::string> failures;  // by rank; "" if none
};

Trained train(const std::string& schedule, const GridTraining& training, int microbatches,
              const std::vector<TokenSample>& samples, const Variant& variant = {}) {
  const int ranks = training.grid.size();
  Trained result;
  result.use.resize(ranks);
  std::mutex mutex;
  result.failures = run_processes(ranks, [&](Processes& own) {
    const int rank = own.index();
    FakeNccl::be(rank);
    const auto backend = make_nccl_backend({.world_size = ranks, .deadline_s = 60, .poison = true}, own);
    Trainer trainer(*backend,
                    program_of(schedule, training.grid, microbatches, training.model.layers, variant),
                    training);
    const double loss = trainer.step(samples).loss;
    const auto gradients = trainer.gradients();
    trainer.step(samples);
    const std::lock_guard lock(mutex);
    result.loss += loss;
    if (rank == 0)
      result.gradients = gradients;
    else
      EXPECT_THAT(gradients, IsEmpty());
    result.use[rank] = trainer.use().at(0);
  });
  return result;
}

// Under sanitizers kernels on the host take their time.
constexpr int kMicrobatches = kStride > 1 ? 2 : 4;

TEST(NcclTraining, EqualsTheReferenceForSchedulesAndGrids) {
  struct Case {
    std::string schedule;
    RankGrid grid;
    Variant variant = {};
  };
  uint32_t seed = 1;
  std::vector<Case> cases{
      {"stp", {.tp = 2, .pp = 2}},
      {"zb-v", {.pp = 2}},
      {"1f1b-i", {.dp = 2, .pp = 2}},
      {"1f1b", {.pp = 4}},
      {"stp", {.tp = 2, .pp = 2}, {.sequence_parallel = true}},
      {"stp", {.dp = 2, .pp = 2}, {.zero = true}},
      {"stp", {.cp = 2, .pp = 2}, {.context_parallel = 2, .offload = 0.7}},
      {"zb-v",
       {.cp = 4},
       {.recompute = {.core = true}, .context_parallel = 4, .cp_method = CpMethod::all_to_all}},
      {"zb-v", {.tp = 2, .pp = 2}, {.sequence_parallel = true, .overlapped = 2, .post_validation = true}}};
  if (kStride > 1) cases.resize(1);
  for (const Case& each : cases) {
    SCOPED_TRACE(each.schedule);
    fake_cuda::reset(seed++);
    FakeNccl nccl;
    const auto training = small_training(4, DType::f32, each.grid);
    const auto samples = samples_for(kMicrobatches, training);
    const auto exact = reference::first_step(training.model, training.initialisation, samples);
    const Trained found = train(each.schedule, training, kMicrobatches, samples, each.variant);
    EXPECT_THAT(found.failures, Each(""));
    EXPECT_NEAR(found.loss, exact.loss, 1e-5 * exact.loss);
    EXPECT_LE(gradient_error(found.gradients, exact.gradients), 1e-5);
    EXPECT_THAT(nccl.problems(), IsEmpty());
    EXPECT_EQ(nccl.count("ncclCommAbort"), 0);
    if (each.variant.cp_method == CpMethod::all_to_all) {  // a rank's groups: cp, dp, world
      EXPECT_EQ(nccl.count("ncclCommInitRankConfig"), 3 * each.grid.size());
    }

    // The same ranks on CPUs held and sent the same.
    OnCpu whole(training, program_of(each.schedule, each.grid, kMicrobatches, 4, each.variant));
    for (int i = 0; i < 2; ++i) whole.trainer.step(samples);
    for (const RankUse& expected : whole.trainer.use()) {
      const RankUse& use = found.use[expected.world_rank];
      EXPECT_EQ(use.world_rank, expected.world_rank);
      expect_same_peaks(use, expected, {"weights", "gradients", "optimizer", "saved"});
      expect_same_traffic(use.traffic, expected.traffic);
    }
  }
}

// Not one by one: on a rank without the head, whose collectives are inside ops too, a call for each chunk and
// step.
TEST(NcclTraining, GradientsOfNormGainsAreReducedTogether) {
  fake_cuda::reset(5);
  FakeNccl nccl;
  const auto training = small_training(4, DType::f32, {.tp = 2, .pp = 2});
  EXPECT_THAT(train("stp", training, kMicrobatches, samples_for(kMicrobatches, training)).failures, Each(""));
  std::vector<int> groups;  // in the order of their making: model, tp, tp inside ops, …
  std::map<int, int> all_reduces;
  for (const FakeNccl::Call& call : nccl.calls(2)) {
    if (call.name == "ncclCommInitRankConfig") groups.push_back(call.group);
    if (call.name == "ncclAllReduce") ++all_reduces[call.group];
  }
  constexpr int kChunks = 2, kSteps = 2;
  EXPECT_EQ(all_reduces[groups.at(2)], 1 + kChunks * kSteps) << "the first call of each group is a probe";
}

TEST(NcclBackend, IsOneRankOfAProcessOnItsGpu) {
  fake_cuda::reset(1);
  const FakeNccl nccl;
  const auto found = run_processes(2, [](Processes& own) {
    FakeNccl::be(own.index());
    EXPECT_THAT(refusal([&] { make_nccl_backend({.world_size = 3}, own); }),
                AllOf(HasSubstr("has 3 ranks, but there are 2 processes"), HasSubstr("as many processes")));
    const auto backend = make_nccl_backend({.world_size = 2}, own);
    EXPECT_EQ(backend->world_size(), 2);
    EXPECT_THAT(backend->ranks(), ElementsAre(own.index()));
    EXPECT_EQ(&backend->processes(), &own);
    EXPECT_EQ(backend->ranks_per_device(), 1);
  });
  EXPECT_THAT(found, Each(""));
  EXPECT_STREQ(getenv("CUDA_MODULE_LOADING"), "EAGER");
  EXPECT_NE(refusal([] { prepare_for_nccl({"tp:none=1"}); }), "");
}

}  // namespace
}  // namespace stp::cuda
