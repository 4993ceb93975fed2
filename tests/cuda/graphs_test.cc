// What the CUDA backend replays as graphs, and how it fails: on the fake runtime, which refuses to capture
// what a graph of ours must not hold.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "stp/device/kernels.h"
#include "support/cuda_on_host.h"

namespace stp::cuda {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;
using testing_support::CudaOnHost;
using testing_support::kNever;
using testing_support::kSoon;

// Work on a tensor as an op has it: two kernels.
void scale_twice(Device& device, Stream& stream, const Tensor& tensor) {
  device.kernels().scale(stream, 2, tensor, tensor);
  device.kernels().scale(stream, 3, tensor, tensor);
}

class Graphs : public CudaOnHost {
 protected:
  void SetUp() override {
    start({.deadline_s = kNever, .graphs = true});
    values_ = device().allocate(stream(), MemoryKind::working, DType::f32, 1, 7);
    device().kernels().fill(stream(), values_, 1);
  }
  void op(uint32_t number, const Tensor& tensor) {
    stream().begin(number);
    scale_twice(device(), stream(), tensor);
  }
  double value() {
    std::vector<float> found(7);
    device().download(stream(), values_, std::as_writable_bytes(std::span(found)));
    return found[3];
  }
  size_t captured() { return fake_cuda::calls("cudaGraphInstantiate"); }

  Tensor values_;
};

TEST_F(Graphs, AnOpThatComesAgainIsReplayed) {
  double expected = 1;
  for (int i = 0; i < 5; ++i) {
    op(i, values_);
    expected *= 6;
  }
  EXPECT_EQ(value(), expected);
  EXPECT_EQ(captured(), 1U);
  EXPECT_EQ(fake_cuda::calls("cudaGraphLaunch"), 4U);
  EXPECT_EQ(stream().graphs().graphs, 1U);
  EXPECT_EQ(stream().graphs().replayed, 8U);
  EXPECT_EQ(stream().graphs().launched, 3U) << "with the fill";
}

TEST_F(Graphs, OtherMemoryOrOtherNumbersAreOtherGraphs) {
  Tensor other = device().allocate(stream(), MemoryKind::working, DType::f32, 1, 7);
  device().kernels().fill(stream(), other, 1);
  double expected = 1;
  for (int i = 0; i < 6; ++i) {
    op(2 * i, i % 2 == 0 ? values_ : other);
    stream().begin(2 * i + 1);
    for (const double factor : {0.5, i % 2 == 0 ? 4.0 : 2.0})
      device().kernels().scale(stream(), factor, values_, values_);
    expected *= (i % 2 == 0 ? 6 : 1) * (i % 2 == 0 ? 2.0 : 1.0);
  }
  EXPECT_EQ(value(), expected);
  EXPECT_EQ(captured(), 4U);
}

// A slot that another tensor had is the same memory, and its calls the same.
TEST_F(Graphs, TensorsThatGetASlotAgainGetItsGraph) {
  for (int i = 0; i < 10; ++i) {
    Tensor tensor = device().allocate(stream(), MemoryKind::working, DType::f32, 1, 300);
    device().kernels().fill(stream(), tensor, i);
    op(i, tensor);
    stream().begin(100 + i);
    std::vector<float> found(300);
    device().download(stream(), tensor, std::as_writable_bytes(std::span(found)));
    EXPECT_THAT(found, Each(static_cast<float>(6 * i)));
    device().release(stream(), tensor);
  }
  EXPECT_EQ(captured(), 1U);
}

TEST_F(Graphs, WhatCannotBeCapturedIsIssuedWithoutAGraph) {
  for (const char* call : {"cudaStreamEndCapture", "cudaGraphInstantiate"}) {
    start({.deadline_s = kNever, .graphs = true});
    values_ = device().allocate(stream(), MemoryKind::working, DType::f32, 1, 7);
    device().kernels().fill(stream(), values_, 1);
    op(0, values_);
    fake_cuda::fail_next(call, cudaErrorStreamCaptureInvalidated);
    for (int i = 1; i < 4; ++i) op(i, values_);
    EXPECT_EQ(value(), 6 * 6 * 6 * 6) << call;
    EXPECT_EQ(stream().graphs().refused, 1U);
    EXPECT_EQ(stream().graphs().replayed, 0U);
  }
}

TEST_F(Graphs, AReplayThatDoesNotEndIsNamedAtTheDeadline) {
  start({.deadline_s = kSoon, .graphs = true});
  values_ = device().allocate(stream(), MemoryKind::working, DType::f32, 1, 7);
  for (int i = 0; i < 3; ++i) op(i, values_);
  device().synchronize();
  fake_cuda::hold(true);
  op(9, values_);
  EXPECT_THROW(device().synchronize(), Cancelled);
  EXPECT_THAT(backend_->guard().failure(), HasSubstr("rank 0, compute, op 9 is not done"));
  fake_cuda::hold(false);
}

TEST_F(Graphs, AGraphThatCannotBeLaunchedIsNamed) {
  for (int i = 0; i < 3; ++i) op(i, values_);
  stream().record();  // issues op 2
  fake_cuda::fail_next("cudaGraphLaunch", cudaErrorLaunchOutOfResources);
  op(3, values_);
  EXPECT_THROW(device().synchronize(), Cancelled);
  EXPECT_THAT(backend_->guard().failure(),
              AllOf(HasSubstr("rank 0, compute, op 3: cudaGraphLaunch"), HasSubstr("graph_cache.cc:")));
}

// The stand-in's clock goes on by 0.01 ms with each thing that a stream does, events included: a piece of
// work between its two events takes two.
TEST_F(Graphs, WorkIsTimedPieceByPieceWhereThatIsAskedFor) {
  for (int i = 0; i < 3; ++i) op(i, values_);
  device().synchronize();
  EXPECT_EQ(device().take_kernel_seconds(), 0);
  const size_t replays = fake_cuda::calls("cudaGraphLaunch");
  ASSERT_TRUE(device().time_kernels(true));
  for (int i = 0; i < 3; ++i) op(i, values_);
  device().kernels().fill(stream(), values_, 1);
  ASSERT_TRUE(device().time_kernels(false));
  for (int i = 0; i < 3; ++i) op(i, values_);
  device().synchronize();
  EXPECT_NEAR(device().take_kernel_seconds(), 7 * 2 * 1e-5, 1e-7);
  EXPECT_EQ(device().take_kernel_seconds(), 0);
  EXPECT_EQ(fake_cuda::calls("cudaGraphLaunch") - replays, 3U) << "what is timed is not replayed";
}

TEST_F(Graphs, WithoutThemNothingIsCaptured) {
  start({.deadline_s = kNever});
  values_ = device().allocate(stream(), MemoryKind::working, DType::f32, 1, 7);
  device().kernels().fill(stream(), values_, 1);
  for (int i = 0; i < 5; ++i) op(i, values_);
  EXPECT_EQ(value(), 6 * 6 * 6 * 6 * 6);
  EXPECT_EQ(captured(), 0U);
}

}  // namespace
}  // namespace stp::cuda
