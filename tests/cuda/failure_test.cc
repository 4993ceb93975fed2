// What goes wrong on the device in one of several ranks that share it ends all of them, with an error that
// says where. On a GPU; and on the fake runtime (cuda_on_host).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "support/gpu_test.h"
#include "support/refusal.h"
#include "support/training.h"

namespace stp::cuda {
namespace {

using namespace testing_support;

class GpuFailure : public GpuTest {};

// A group of four on one GPU; op 2 of rank 2 computes a number that is not finite, while all others go on.
TEST_F(GpuFailure, WhatOneRankFindsEndsAllAndNamesRankStreamAndOp) {
  constexpr int kRanks = 4;
  const auto backend = cuda::make_backend({.world_size = kRanks, .deadline_s = 60});
  backend->describe_with([](int, uint32_t op) { return "attn.F of F0." + std::to_string(op); });
  std::vector<std::unique_ptr<Stream>> streams;
  std::vector<Part> parts;
  for (int rank = 0; rank < kRanks; ++rank) {
    Device& device = backend->device(rank);
    Stream& stream = *streams.emplace_back(device.make_stream("tp", StreamPriority::communication));
    const Tensor tensor = device.allocate(stream, MemoryKind::working, DType::f32, 16, 16);
    device.kernels().issue(stream, kernel::Fill{tensor, 1});
    parts.push_back({&stream, tensor, tensor});
  }
  const auto group = backend->group("tp", {0, 1, 2, 3});
  for (uint32_t op = 0; op < 4; ++op) {
    for (const auto& stream : streams) stream->begin(op);
    if (op == 2) {
      Kernels& kernels = backend->device(2).kernels();
      kernels.issue(*streams[2], kernel::Fill{parts[2].in, NAN});
      kernels.issue(*streams[2], kernel::CheckFinite{parts[2].in, "the sum"});
    }
    group->all_reduce(Reduce::sum, parts);
  }
  for (int rank = 0; rank < kRanks; ++rank) EXPECT_THROW(backend->device(rank).synchronize(), Cancelled);
  EXPECT_EQ(backend->guard().failure(), "rank 2, tp, attn.F of F0.2: the sum is not finite");
}

// In training: what is not finite is found by kernels, in the last rank's head and in what follows from it;
// which of them is read first depends on how far the GPU has come.
TEST_F(GpuFailure, WhatIsNotFiniteEndsTrainingAndNamesRankAndOp) {
  auto training = small_training(2, DType::bf16, {.pp = 2});
  training.initialisation.weight_deviation = 1e30;
  const auto backend = cuda::make_backend({.world_size = 2, .deadline_s = 60});
  Trainer trainer(*backend, program_of("1f1b", training.grid, 3, 2), training);
  const auto samples = samples_for(trainer.program(), training);
  EXPECT_THAT(error_of<std::runtime_error>([&] { trainer.step(samples); }),
              testing::ContainsRegex("rank [01], compute, .*(head.F of F|optimizer).* is not finite"));
}

}  // namespace
}  // namespace stp::cuda
