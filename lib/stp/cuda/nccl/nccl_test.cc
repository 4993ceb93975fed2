// NCCL itself on one GPU: groups of one, as they are made, watched and ended. On a GPU; and on the fake
// runtime with the NCCL of fake_nccl.h.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <numeric>
#include <thread>
#include <vector>

#include "stp/base/error.h"
#include "stp/cuda/cuda_backend.h"
#include "stp/cuda/cuda_check.h"
#include "support/nccl_process.h"
#ifdef STP_KERNELS_ON_HOST
#include "support/fake_cuda.h"
#include "support/fake_nccl.h"
#endif

namespace stp::cuda {
namespace {

using namespace testing_support;
using testing::AllOf;
using testing::HasSubstr;

#ifdef STP_KERNELS_ON_HOST
constexpr double kDeadline = 0.3;

class Library {
 public:
  Library() {
    fake_cuda::reset(3);
    FakeNccl::be(0);
  }
  ~Library() { EXPECT_THAT(nccl_.problems(), testing::IsEmpty()); }

 private:
  FakeNccl nccl_;
};

// The stream stays where it is until `go`.
void hold(cudaStream_t stream, std::atomic<bool>& go) {
  fake_cuda::launch_when(
      stream, [&go] { return go.load(); }, [] {});
}
#else
constexpr double kDeadline = 3;  // NCCL takes its time to abort

class Library {};

void hold(cudaStream_t stream, std::atomic<bool>& go) {
  STP_CUDA(cudaLaunchHostFunc(
      stream,
      [](void* may_go) {
        while (!*static_cast<std::atomic<bool>*>(may_go))
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
      },
      &go));
}
#endif

constexpr int64_t kCount = 10'007;

class GpuNccl : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string lack = lack_of_gpu(); !lack.empty()) GTEST_SKIP() << lack;
    try {
      nccl();
    } catch (const InputError& error) {
      GTEST_SKIP() << error.what();
    }
  }

  Library library_;
  Processes alone_;
};

// Of a group of one make_group() makes no communicator.
void carry_out(NcclProcess& process, NcclComm& comm, CallKind kind, const std::vector<Part>& parts) {
  process.groups->carry_out(comm, {kind, Reduce::sum, parts}, 0);
}

TEST_F(GpuNccl, AGroupOfOneIsMadeUsedAndEnded) {
  NcclProcess one(alone_, 60);
  NcclComm &tp = one.groups->join("tp", {0}, GroupUse::collectives),
           &dp = one.groups->join("dp", {0}, GroupUse::collectives);
  {
    const auto stream = one.stream("tp");
    std::vector<float> sent(kCount);
    std::iota(sent.begin(), sent.end(), 3.0F);
    const auto tensor = [&] { return one.tensor(*stream, DType::f32, 1, kCount, 0); };
    Tensor in = tensor(), gathered = tensor(), scattered = tensor();
    one.device.upload(*stream, in, std::as_bytes(std::span(sent)));
    carry_out(one, tp, CallKind::all_reduce, part(*stream, in));
    EXPECT_EQ(one.floats(*stream, in), sent);
    carry_out(one, dp, CallKind::all_gather, part(*stream, in, gathered));
    EXPECT_EQ(one.floats(*stream, gathered), sent);
    carry_out(one, tp, CallKind::reduce_scatter, part(*stream, in, scattered));
    EXPECT_EQ(one.floats(*stream, scattered), sent);
    one.device.synchronize();
  }
  one.groups.reset();
  EXPECT_EQ(one.run.guard.failure(), "");
}

TEST_F(GpuNccl, WhatTheDeviceDoesNotEndIsNamedAtTheDeadlineAndAllIsAborted) {
  static std::atomic<bool> go;  // the device may look at it when the test is over
  go = false;
  NcclProcess one(alone_, kDeadline);
  // NCCL itself waits for the device when it aborts.
  const std::jthread release([&](const std::stop_token& over) {
    while (!one.run.guard.failed() && !over.stop_requested())
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    go = true;
  });
  NcclComm& tp = one.groups->join("tp", {0}, GroupUse::collectives);
  one.groups->join("dp", {0}, GroupUse::collectives);
  {
    const auto stream = one.stream("tp");
    const Tensor in = one.tensor(*stream, DType::f32, 1, kCount, 0),
                 out = one.tensor(*stream, DType::f32, 1, kCount, 0);
    one.device.synchronize();
    stream->begin(4);
    cuda_stream(*stream).give([](cudaStream_t on) { hold(on, go); });
    carry_out(one, tp, CallKind::all_gather, part(*stream, in, out));
    EXPECT_THROW(one.device.synchronize(), Cancelled);
    EXPECT_THAT(
        one.run.guard.failure(),
        AllOf(HasSubstr("rank 0, tp, F0.4, all-gather of 1 x 10007 f32 in group tp"),
              HasSubstr("is not done"), HasSubstr("nothing moved for " + shown("%g", kDeadline) + " s")));
  }
  one.groups.reset();
}

}  // namespace
}  // namespace stp::cuda
