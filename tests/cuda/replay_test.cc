// Replays on the CUDA backend: one rank alone does all that it does among the others, and its communication
// takes its time. On a GPU; and on the fake runtime (cuda_on_host), where the clock that kernels read moves
// when it is read.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/effort.h"
#include "support/emulated_groups.h"
#include "support/gpu_test.h"
#include "support/refusal.h"
#include "support/training.h"

namespace stp::cuda {
namespace {

using namespace testing_support;
using testing::HasSubstr;

class GpuReplay : public GpuTest {};

CallTimes all_take(CallTime time) {
  return [time](CallKind, double, const std::vector<int>&) { return time; };
}

TEST_F(GpuReplay, ARankDoesTheSameAlone) {
  struct Case {
    std::string schedule;
    RankGrid grid;
    DType type;
    Variant variant = {};
  };
  std::vector<Case> cases{{"stp", {.tp = 2, .pp = 2}, DType::bf16},
                          {"zb-v", {.pp = 2}, DType::f32},
                          {"1f1b", {.tp = 3, .dp = 2}, DType::bf16},
                          {"stp",
                           {.tp = 2, .cp = 2, .pp = 2},
                           DType::f32,
                           {.sequence_parallel = true, .context_parallel = 2, .overlapped = 2}}};
  if (kStride > 1) cases.resize(1);  // under sanitizers kernels on the host take their time
  for (const Case& each : cases) {
    constexpr int kMicrobatches = kStride > 1 ? 2 : 3;
    auto training = small_training(4, each.type, each.grid);
    if (each.grid.tp == 3)
      training.model.q_heads = 12, training.model.kv_heads = 3, training.model.vocab = 21;
    const Program program = program_of(each.schedule, each.grid, kMicrobatches, 4, each.variant);
    OnCpu whole(training, program);
    whole.step();
    const auto samples = whole.samples();
    const std::vector<RankUse> expected = whole.trainer.use();
    for (const int rank : {0, each.grid.size() - 1}) {
      SCOPED_TRACE(each.schedule + ", rank " + std::to_string(rank));
      const auto backend =
          make_replay_backend({.world_size = each.grid.size(), .deadline_s = 60, .poison = true},
                              {.rank = rank, .times = all_take({1e-6, 2e-6}), .collective_ctas = 4});
      Trainer trainer(*backend, program, training);
      for (int i = 0; i < 2; ++i) trainer.step(samples);  // the second with weights that the first made
      const RankUse use = trainer.use().at(0);
      EXPECT_EQ(use.world_rank, rank);
      expect_same_peaks(use, expected[rank], {"weights", "gradients", "optimizer", "saved"});
      expect_same_traffic(use.traffic, expected[rank].traffic, 2);
      expect_nothing_left(*backend);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Gpu, EmulatedGroups,
                         testing::Values(ReplayBackend{make_replay_backend, DType::f32,
                                                       [] { return lack_of_gpu(); }}));

TEST_F(GpuReplay, ACallBeyondTheDeadlineIsRefused) {
  const auto backend =
      make_replay_backend({.world_size = 2, .deadline_s = 5}, {.rank = 0, .times = all_take({1000, 2000})});
  Device& device = backend->device(0);
  const auto stream = device.make_stream("send to rank 1", StreamPriority::communication);
  const auto group = backend->group("p2p", {0, 1}, GroupUse::transfers);
  const Tensor tensor = device.allocate(*stream, MemoryKind::working, DType::bf16, 2, 8);
  const std::vector<Part> parts{{stream.get(), tensor, {}}};
  EXPECT_THAT(error_of<std::runtime_error>([&] { group->transfer(parts); }),
              HasSubstr("transfer of 2 x 8 bf16 takes 3000 s over its emulated link"));
}

}  // namespace
}  // namespace stp::cuda
