// Training by one process per GPU over NCCL, without either: processes are threads, each with its own
// backend, order of issue, rendezvous and session; NCCL's calls meet in the fake runtime's memory, whose
// streams go on in a random order and stand still until all members of a call have come to it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "stp/cuda/cuda_run.h"
#include "stp/cuda/nccl_backend.h"
#include "stp/cuda/nccl_session.h"
#include "support/effort.h"
#include "support/fake_cuda.h"
#include "support/nccl_exchange.h"
#include "support/training.h"

namespace stp::cuda {
namespace {

using namespace testing_support;
using testing::Each;
using testing::HasSubstr;
using testing::IsEmpty;

struct Trained {
  double loss = 0;
  std::map<std::string, std::vector<double>> gradients;
  std::vector<RankUse> use;           // by rank
  std::vector<std::string> failures;  // likewise; "" if none
};

Trained train(
    NcclOnHost& world, const std::string& schedule, const Training& training, int microbatches,
    const std::vector<TokenSample>& samples, double deadline_s = 60,
    const std::function<void(int rank)>& between = [](int) {}) {
  const int ranks = training.grid.size();
  Listener listener("127.0.0.1", 0);
  const uint16_t port = listener.port();
  Trained result;
  result.use.resize(ranks);
  result.failures.resize(ranks);
  std::mutex mutex;
  std::vector<std::thread> processes;
  for (int rank = 0; rank < ranks; ++rank) {
    processes.emplace_back([&, rank] {
      std::optional<Listener> own;
      if (rank == 0) own = std::move(listener);
      try {
        RunGuard guard{std::chrono::duration<double>(deadline_s)};
        Rendezvous rendezvous({.rank = rank, .world_size = ranks, .port = port}, guard, {}, std::move(own));
        const NcclApi api = world.nccl.api(rank);
        try {
          const auto backend =
              cuda::make_nccl_backend({.world_size = ranks, .poison = true}, rendezvous, {}, api);
          Schedule made = make_schedule(find_generator(schedule), {training.grid.pp, microbatches});
          const int stages = made.placement.stages();
          Trainer trainer(
              *backend,
              execution_program(std::move(made), std::vector<int>(stages, training.model.layers / stages),
                                training.grid.dp),
              training);
          const double loss = trainer.step(samples).loss;
          const auto gradients = trainer.gradients();
          between(rank);
          trainer.step(samples);
          const std::lock_guard lock(mutex);
          result.loss += loss;
          if (rank == 0)
            result.gradients = gradients;
          else
            EXPECT_THAT(gradients, IsEmpty());
          result.use[rank] = trainer.use().at(0);
        } catch (const Cancelled&) {  // between the steps
          result.failures[rank] = guard.failure();
        }
        if (!guard.failed()) rendezvous.end();
      } catch (const std::exception& error) {
        result.failures[rank] = error.what();
      }
    });
  }
  for (std::thread& process : processes) process.join();
  return result;
}

// Under sanitizers kernels on the host take their time.
constexpr int kMicrobatches = kStride > 1 ? 2 : 4;

std::vector<TokenSample> samples_for(const Training& training) {
  return random_samples(kMicrobatches * training.microbatch_size * training.grid.dp, training.seq,
                        training.model.vocab);
}

TEST(NcclTraining, EqualsTheReferenceForSchedulesAndGrids) {
  struct Case {
    std::string schedule;
    RankGrid grid;
  };
  uint32_t seed = 1;
  std::vector<Case> cases{{"stp", {.tp = 2, .cp = 1, .dp = 1, .pp = 2}},
                          {"zb-v", {.tp = 1, .cp = 1, .dp = 1, .pp = 2}},
                          {"1f1b-i", {.tp = 1, .cp = 1, .dp = 2, .pp = 2}},
                          {"1f1b", {.tp = 1, .cp = 1, .dp = 1, .pp = 4}}};
  if (kStride > 1) cases.resize(1);
  for (const Case& each : cases) {
    SCOPED_TRACE(each.schedule);
    fake_cuda::reset(seed++);
    NcclOnHost world;
    const Training training = small_training(4, DType::f32, each.grid);
    const auto samples = samples_for(training);
    const auto exact = exact_gradients(training, samples);
    const Trained found = train(world, each.schedule, training, kMicrobatches, samples);
    EXPECT_THAT(found.failures, Each(""));
    EXPECT_NEAR(found.loss, exact.loss, 1e-5 * exact.loss);
    EXPECT_LE(gradient_error(found.gradients, exact.gradients), 1e-5);
    EXPECT_THAT(world.nccl.problems(), IsEmpty());
    EXPECT_EQ(world.nccl.count("ncclCommAbort"), 0);

    // The same ranks as threads on CPUs held and sent the same.
    const auto cpu = cpu::make_backend({.world_size = each.grid.size()});
    Schedule made = make_schedule(find_generator(each.schedule), {each.grid.pp, kMicrobatches});
    const int stages = made.placement.stages();
    Trainer whole(*cpu,
                  execution_program(std::move(made), std::vector<int>(stages, 4 / stages), each.grid.dp),
                  training);
    for (int i = 0; i < 2; ++i) whole.step(samples);
    const auto expected = whole.use();
    for (size_t rank = 0; rank < expected.size(); ++rank) {
      EXPECT_EQ(found.use[rank].world_rank, static_cast<int>(rank));
      for (const char* kind : {"weights", "gradients", "optimizer", "saved"})
        EXPECT_EQ(found.use[rank].peak_bytes.at(kind), expected[rank].peak_bytes.at(kind)) << kind;
      EXPECT_EQ(found.use[rank].all_reduce_bytes, expected[rank].all_reduce_bytes);
      EXPECT_EQ(found.use[rank].sent_bytes, expected[rank].sent_bytes);
    }
  }
}

// One of four dies between two steps, the others wait for it in the midst of theirs.
TEST(NcclTraining, AProcessThatDiesEndsTheOthersWithItsName) {
  fake_cuda::reset(7);
  NcclOnHost world;
  const Training training = small_training(4, DType::f32, {.tp = 2, .cp = 1, .dp = 1, .pp = 2});
  const Trained found = train(world, "stp", training, kMicrobatches, samples_for(training), 60, [](int rank) {
    if (rank == 2) throw std::runtime_error("the disk is full");
  });
  EXPECT_EQ(found.failures[2], "the disk is full");
  for (const int rank : {0, 1, 3}) EXPECT_THAT(found.failures[rank], HasSubstr("rank 2 ended early"));
  EXPECT_EQ(world.nccl.count("ncclCommAbort"), world.nccl.count("ncclCommInitRankConfig"));
}

TEST(NcclDeviceOnHost, AMarkThatIsNotPassedLeavesNoError) {
  fake_cuda::reset(7);
  CudaRun run(3600, 1, 0);
  const NcclDevice device = cuda_runtime_for_nccl(run);
  fake_cuda::hold(true);
  const auto mark = device.record(device.stream());
  EXPECT_FALSE(device.passed(mark.get()));
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  fake_cuda::hold(false);
  EXPECT_TRUE(device.passed(mark.get()));
}

}  // namespace
}  // namespace stp::cuda
