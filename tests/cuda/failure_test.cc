// What goes wrong on the device in one of several ranks that share it ends all of them, with an error that
// says where. On a GPU; and on the fake runtime (cuda_on_host).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "stp/cuda/cuda_backend.h"
#include "stp/cuda/cuda_check.h"
#include "stp/cuda/cuda_stream.h"
#include "support/training.h"

namespace stp::cuda {
namespace {

using namespace testing_support;
using testing::AllOf;
using testing::HasSubstr;

class GpuFailure : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string lack = lack_of_gpu(); !lack.empty()) GTEST_SKIP() << lack;
  }
};

// Four ranks that all-reduce, op after op; in op 5 `trouble` is given to rank 2's stream, which all others
// would wait for. Returns the run's failure; every rank ends as one that is stopped.
std::string failure_of(const std::function<void(CudaStream&)>& trouble) {
  constexpr int kRanks = 4, kOps = 12;
  const auto backend = cuda::make_backend({.world_size = kRanks, .deadline_s = 60});
  backend->describe_with([](int, uint32_t op) { return "attn.F of F0." + std::to_string(op); });
  std::atomic<int> stopped = 0;
  std::vector<std::thread> hosts;
  for (int rank = 0; rank < kRanks; ++rank)
    hosts.emplace_back([&, rank] {
      Device& device = backend->device(rank);
      const auto stream = device.make_stream("tp", StreamPriority::communication);
      const auto group = backend->communicator("tp", {0, 1, 2, 3}, rank);
      Tensor tensor = device.allocate(*stream, MemoryKind::working, DType::f32, 16, 16);
      try {
        for (uint32_t op = 0; op < kOps; ++op) {
          stream->begin(op);
          if (rank == 2 && op == 5) trouble(cuda_stream(*stream));
          group->all_reduce(*stream, Reduce::sum, tensor);
        }
        device.synchronize();
      } catch (const Cancelled&) {
        ++stopped;
      }
    });
  for (std::thread& host : hosts) host.join();
  EXPECT_EQ(stopped, kRanks);
  return backend->guard().failure();
}

TEST_F(GpuFailure, ACallOfOneRankEndsAllAndNamesCallRankOpAndPlace) {
  const std::string failure = failure_of([](CudaStream& stream) {
    stream.enqueue([](cudaStream_t at) { STP_CUDA(cudaFreeAsync(reinterpret_cast<void*>(8), at)); });
  });
  EXPECT_THAT(failure, AllOf(HasSubstr("rank 2, tp, attn.F of F0.5: cudaFreeAsync: cudaError"),
                             testing::ContainsRegex("failure_test.cc:[0-9]+")));
}

// In training: what is not finite is found by kernels, in the last rank's head and in what follows from it;
// which of them is read first is up to the hosts.
TEST_F(GpuFailure, WhatIsNotFiniteEndsTrainingAndNamesRankAndOp) {
  Training training = small_training(2, DType::bf16, {.tp = 1, .cp = 1, .dp = 1, .pp = 2});
  training.initialisation.weight_deviation = 1e30;
  const auto backend = cuda::make_backend({.world_size = 2, .deadline_s = 60});
  Trainer trainer(*backend, execution_program(make_schedule(find_generator("1f1b"), {2, 3}), {1, 1}, 1),
                  training);
  std::string failure;
  try {
    trainer.step(random_samples(6, training.seq, training.model.vocab));
  } catch (const std::runtime_error& error) {
    failure = error.what();
  }
  EXPECT_THAT(failure,
              testing::ContainsRegex("rank [01], compute, .*(head.F of F|optimizer).* is not finite"));
}

}  // namespace
}  // namespace stp::cuda
