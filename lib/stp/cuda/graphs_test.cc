// What the CUDA backend launches as graphs, and how it fails: on the fake runtime, which refuses to capture
// what a graph of ours must not hold.
#include "stp/cuda/graphs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "stp/device/kernels.h"
#include "support/cuda_on_host.h"

namespace stp::cuda {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;
using testing_support::CudaOnHost;

// Work on a tensor as an op has it: two kernels.
void scale_twice(Device& device, Stream& stream, const Tensor& tensor) {
  device.kernels().issue(stream, kernel::Scale{2, tensor, tensor});
  device.kernels().issue(stream, kernel::Scale{3, tensor, tensor});
}

class GraphsOnHost : public CudaOnHost {
 protected:
  void SetUp() override { begin({.deadline_s = kNever, .graphs = true}); }
  // With a tensor of ones.
  void begin(const BackendOptions& options) {
    start(options);
    values_ = device().allocate(stream(), MemoryKind::working, DType::f32, 1, 7);
    device().kernels().issue(stream(), kernel::Fill{values_, 1});
  }
  void op(uint32_t number, const Tensor& tensor) {
    stream().begin(number);
    scale_twice(device(), stream(), tensor);
  }
  double value() { return floats(values_)[3]; }
  static size_t instantiated() { return fake_cuda::calls("cudaGraphInstantiate"); }

  Tensor values_;
};

TEST_F(GraphsOnHost, AnOpThatComesAgainIsAGraph) {
  double expected = 1;
  for (int i = 0; i < 5; ++i) {
    op(i, values_);
    expected *= 6;
  }
  EXPECT_EQ(value(), expected);
  EXPECT_EQ(instantiated(), 1U);
  EXPECT_EQ(fake_cuda::calls("cudaGraphLaunch"), 4U);
  EXPECT_EQ(stream().graphs().in_graphs, 8U);
  EXPECT_EQ(stream().graphs().alone, 3U) << "with the fill";
  EXPECT_NEAR(device().share_in_graphs().value(), 8.0 / 11, 1e-12);
}

// As the ops of one kind are, microbatch after microbatch, and step after step.
TEST_F(GraphsOnHost, OtherMemoryAndOtherNumbersHaveTheirGraphsWhichAreCapturedOnce) {
  Tensor other = device().allocate(stream(), MemoryKind::working, DType::f32, 1, 7);
  device().kernels().issue(stream(), kernel::Fill{other, 1});
  double expected = 1;
  for (int i = 0; i < 10; ++i) {
    op(2 * i, i % 2 == 0 ? values_ : other);
    stream().begin(2 * i + 1);
    for (const double factor : {0.5, i % 2 == 0 ? 4.0 : 2.0})
      device().kernels().issue(stream(), kernel::Scale{factor, values_, values_});
    expected *= (i % 2 == 0 ? 6 : 1) * (i % 2 == 0 ? 2.0 : 1.0);
  }
  EXPECT_EQ(value(), expected);
  EXPECT_EQ(floats(other)[6], 6 * 6 * 6 * 6 * 6);
  EXPECT_EQ(fake_cuda::calls("cudaStreamBeginCapture"), 4U);
  EXPECT_EQ(instantiated(), 4U);
  EXPECT_EQ(fake_cuda::calls("cudaGraphLaunch"), 19U);
}

// The optimizer's kernels differ in each step.
TEST_F(GraphsOnHost, WhatNeverComesAgainIsNotCaptured) {
  const Tensor like = device().allocate(stream(), MemoryKind::working, DType::f32, 1, 7);
  device().kernels().issue(stream(), kernel::Fill{like, 1});
  for (int step = 1; step <= 4; ++step) {
    stream().begin(step);
    for (int i = 0; i < 2; ++i)
      device().kernels().issue(stream(),
                               kernel::AdamW{{.step = step}, 1, {}, like, like, like, values_, values_});
  }
  EXPECT_LT(value(), 1);
  EXPECT_EQ(fake_cuda::calls("cudaStreamBeginCapture"), 0U);
  EXPECT_EQ(stream().graphs().alone, 10U);
}

// 301 ops, the first of which comes before there are graphs.
void scale_by_new_factors(Device& device, Stream& stream, const Tensor& tensor, bool refuse_updates) {
  for (int i = 0; i < 301; ++i) {
    stream.begin(i);
    if (refuse_updates) fake_cuda::fail_next("cudaGraphExecUpdate", cudaErrorGraphExecUpdateFailure);
    for (const double factor : {2.0 + i, 1 / (2.0 + i)})
      device.kernels().issue(stream, kernel::Scale{factor, tensor, tensor});
  }
}

TEST_F(GraphsOnHost, ArgumentsThatAreNewEachTimeUpdateOldGraphs) {
  scale_by_new_factors(device(), stream(), values_, false);
  EXPECT_NEAR(value(), 1, 1e-4);
  EXPECT_EQ(instantiated(), 256U);
  EXPECT_EQ(fake_cuda::calls("cudaGraphExecUpdate"), 44U);
  EXPECT_EQ(stream().graphs().refused, 0U);
}

TEST_F(GraphsOnHost, WhereUpdatesAreRefusedKernelsAreLaunchedWithoutGraphs) {
  scale_by_new_factors(device(), stream(), values_, true);
  EXPECT_NEAR(value(), 1, 1e-4);
  EXPECT_EQ(instantiated(), 256U + 3);
  EXPECT_EQ(fake_cuda::calls("cudaGraphExecUpdate"), 4U);
  EXPECT_EQ(stream().graphs().refused, 1U);
}

// An event stands behind the kernels that were collected when it was asked for; who waits has them given.
TEST_F(GraphsOnHost, EventsStandBehindWhatIsCollected) {
  const auto other = device().make_stream("tp", StreamPriority::communication);
  Tensor copy = device().allocate(*other, MemoryKind::working, DType::f32, 1, 7);
  for (int i = 0; i < 4; ++i) {
    op(i, values_);
    const EventRef done = stream().record();
    other->wait(done);
    device().kernels().issue(*other, kernel::Copy{values_, copy});
    stream().wait(other->record());
  }
  EXPECT_THAT(download<float>(device(), *other, copy), Each(6.0F * 6 * 6 * 6));
}

TEST_F(GraphsOnHost, WhatCannotBeCapturedIsIssuedWithoutAGraph) {
  for (const char* call : {"cudaStreamEndCapture", "cudaGraphInstantiate"}) {
    begin({.deadline_s = kNever, .graphs = true});
    op(0, values_);
    fake_cuda::fail_next(call, cudaErrorStreamCaptureInvalidated);
    for (int i = 1; i < 4; ++i) op(i, values_);
    EXPECT_EQ(value(), 6 * 6 * 6 * 6) << call;
    EXPECT_EQ(stream().graphs().refused, 1U);
    EXPECT_EQ(stream().graphs().in_graphs, 0U);
  }
}

TEST_F(GraphsOnHost, AGraphThatDoesNotEndIsNamedAtTheDeadline) {
  begin({.deadline_s = kSoon, .graphs = true});
  for (int i = 0; i < 3; ++i) op(i, values_);
  device().synchronize();
  fake_cuda::hold(true);
  op(9, values_);
  EXPECT_THROW(device().synchronize(), Cancelled);
  EXPECT_THAT(failure(), HasSubstr("rank 0, compute, op 9 is not done"));
  fake_cuda::hold(false);
}

TEST_F(GraphsOnHost, AGraphThatCannotBeLaunchedIsNamed) {
  for (int i = 0; i < 3; ++i) op(i, values_);
  device().synchronize();  // op 2 too
  fake_cuda::fail_next("cudaGraphLaunch", cudaErrorLaunchOutOfResources);
  op(3, values_);
  EXPECT_THROW(device().synchronize(), Cancelled);
  EXPECT_THAT(failure(), AllOf(HasSubstr("rank 0, compute, op 3: cudaGraphLaunch"), HasSubstr("graphs.cc:")));
}

// The stand-in's clock goes on by 0.01 ms with each thing that a stream does, events included: a piece of
// work between its two events takes two, and one without the events' own time.
TEST_F(GraphsOnHost, WorkIsTimedPieceByPieceWhereThatIsAskedFor) {
  for (int i = 0; i < 3; ++i) op(i, values_);
  device().synchronize();
  EXPECT_EQ(device().take_kernel_seconds(), 0);
  const size_t launches = fake_cuda::calls("cudaGraphLaunch");
  ASSERT_TRUE(device().time_kernels(true));
  device().kernels().issue(stream(),
                           kernel::Fill{values_, 1});  // of no op, as what comes before a step's first
  for (int i = 0; i < 3; ++i) op(i, values_);
  device().kernels().issue(stream(), kernel::Fill{values_, 1});
  device().kernels().issue(stream(), kernel::CopyColumns{values_, 0, values_, 4, 3});
  ASSERT_TRUE(device().time_kernels(false));
  for (int i = 0; i < 3; ++i) op(i, values_);
  device().synchronize();
  EXPECT_NEAR(device().take_kernel_seconds(), 8 * 1e-5, 1e-7);
  EXPECT_EQ(device().take_kernel_seconds(), 0);
  EXPECT_EQ(fake_cuda::calls("cudaGraphLaunch") - launches, 3U) << "what is timed is in no graph";
}

TEST_F(GraphsOnHost, WithoutThemNothingIsCaptured) {
  begin({.deadline_s = kNever});
  for (int i = 0; i < 5; ++i) op(i, values_);
  EXPECT_EQ(value(), 6 * 6 * 6 * 6 * 6);
  EXPECT_EQ(instantiated(), 0U);
}

}  // namespace
}  // namespace stp::cuda
