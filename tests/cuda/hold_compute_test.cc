// What the GPU is given, and in which order, where compute is held behind collectives: one rank of two, whose
// all-reduces are kernels of emulated links.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "stp/cuda/cuda_backend.h"
#include "stp/cuda/kernels/pause.h"
#include "support/cuda_on_host.h"
#include "support/simt_clock.h"
#include "support/training.h"

namespace stp::cuda {
namespace {

using namespace testing_support;
using testing::Contains;
using testing::Not;

class HoldCompute : public CudaOnHost {
 protected:
  struct Given {
    const void* kernel;
    cudaStream_t stream;
  };

  static void note(std::vector<Given>& launches) {
    launches.clear();
    fake_cuda::watch_launches([&](const void* kernel, cudaStream_t stream) {
      launches.push_back({kernel, stream});
    });
  }

  // The launches of a second step, or of both with graphs, whose kernels are launched when they are captured:
  // how often depends on addresses. And the losses of both.
  static std::pair<std::vector<Given>, std::vector<double>> step(double hold_us, bool graphs) {
    fake_cuda::reset(1);
    const auto training = small_training(2, DType::f32, {.tp = 2});
    const auto times = [](CallKind, double, const std::vector<int>&) { return CallTime{1e-6, 1e-6}; };
    const auto backend = make_replay_backend(
        {.world_size = 2, .deadline_s = kNever, .graphs = graphs, .hold_compute_us = hold_us},
        {.rank = 0, .times = times});
    Trainer trainer(*backend, program_of("1f1b", training.grid, 2, 2), training);
    const auto samples = samples_for(trainer.program(), training);
    std::vector<Given> launches;
    if (graphs) note(launches);
    std::vector<double> losses{trainer.step(samples).loss};
    if (!graphs) note(launches);
    losses.push_back(trainer.step(samples).loss);
    fake_cuda::reset(1);
    return {launches, losses};
  }
};

TEST_F(HoldCompute, WhatFollowsACollectiveBeginsWithAPauseAndNothingElseChanges) {
  std::vector<Given> alone;
  note(alone);
  const uint64_t before = simt::clock_ns;
  pause(stream(), 5000);
  device().synchronize();
  EXPECT_GE(simt::clock_ns - before, 5000U);
  ASSERT_EQ(alone.size(), 1U);
  const void* const pauses = alone.front().kernel;

  for (const bool graphs : {false, true}) {
    SCOPED_TRACE(graphs ? "with graphs" : "without graphs");
    const auto [plain, losses] = step(0, graphs);
    const auto [held, losses_of_held] = step(5, graphs);
    EXPECT_EQ(losses, losses_of_held);
    std::vector<const void*> kernels, kernels_of_held;
    for (const Given& each : plain) kernels.push_back(each.kernel);
    cudaStream_t compute = nullptr;
    for (const Given& each : held) {
      if (each.kernel != pauses) {
        kernels_of_held.push_back(each.kernel);
        continue;
      }
      if (compute == nullptr) compute = each.stream;
      EXPECT_EQ(each.stream, compute);
    }
    ASSERT_NE(compute, nullptr) << "there is no pause";
    EXPECT_THAT(kernels, Not(Contains(pauses)));
    if (graphs) continue;
    EXPECT_EQ(kernels, kernels_of_held);
    for (size_t i = 1; i < held.size(); ++i)
      EXPECT_EQ(held[i].kernel == pauses, held[i].stream == compute && held[i - 1].stream != compute)
          << "launch " << i << ": each kernel of the tp stream is followed by a pause, and nothing else is";
  }
}

}  // namespace
}  // namespace stp::cuda
