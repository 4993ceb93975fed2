// Memory, streams and events of the CUDA backend. On a GPU as suites named Gpu…; and on the fake runtime of
// tests/support/fake_cuda.h, which is set to behave as badly as CUDA may.
#include "stp/cuda/cuda_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <random>
#include <vector>

#include "stp/cuda/cuda_backend.h"
#include "stp/cuda/cuda_check.h"
#include "stp/cuda/cuda_stream.h"
#include "stp/device/kernels.h"
#include "support/refusal.h"

namespace stp::cuda {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

class GpuDevice : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string lack = lack_of_gpu(); !lack.empty()) GTEST_SKIP() << lack;
    start({.world_size = 1});
  }
  void start(const BackendOptions& options) {
    other_.reset();
    stream_.reset();
    backend_ = make_backend(options);
    stream_ = device().make_stream("compute", StreamPriority::compute);
    other_ = device().make_stream("tp", StreamPriority::communication);
  }
  Device& device() { return backend_->device(0); }
  CudaStream& stream() { return cuda_stream(*stream_); }
  CudaStream& other() { return cuda_stream(*other_); }
  Tensor bytes(int64_t count, MemoryKind kind = MemoryKind::working) {
    return device().allocate(*stream_, kind, DType::bf16, 1, (count + 1) / 2);
  }
  std::vector<std::byte> downloaded(Stream& stream, const Tensor& tensor, size_t count) {
    std::vector<std::byte> found(count);
    device().download(stream, tensor, found);
    return found;
  }

  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Stream> stream_, other_;
};

std::vector<std::byte> random_bytes(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<std::byte> all(count);
  for (std::byte& each : all) each = static_cast<std::byte>(random());
  return all;
}

// One piece of pinned memory, several, and more than there is of it.
TEST_F(GpuDevice, WhatIsUploadedIsDownloaded) {
  for (const size_t count : {size_t{1}, size_t{1000}, (size_t{4} << 20) + 3, (size_t{40} << 20) + 7}) {
    const auto sent = random_bytes(count, 1);
    Tensor tensor = bytes(static_cast<int64_t>(count));
    {
      const std::vector<std::byte> gone = sent;
      device().upload(stream(), tensor, gone);
    }
    EXPECT_EQ(downloaded(stream(), tensor, count), sent) << count;
    device().release(stream(), tensor);
    EXPECT_FALSE(tensor);
  }
  device().synchronize();
  EXPECT_EQ(backend_->guard().failure(), "");
}

TEST_F(GpuDevice, UploadsOfTwoStreamsDoNotMix) {
  std::vector<Tensor> tensors;
  std::vector<std::vector<std::byte>> sent;
  for (int i = 0; i < 60; ++i) {
    sent.push_back(random_bytes(700000 + i, i));
    Stream& on = i % 3 == 0 ? other() : static_cast<Stream&>(stream());
    tensors.push_back(device().allocate(on, MemoryKind::data, DType::bf16, 1, 400000));
    device().upload(on, tensors.back(), sent.back());
  }
  device().synchronize();
  for (int i = 0; i < 60; ++i) EXPECT_EQ(downloaded(stream(), tensors[i], sent[i].size()), sent[i]) << i;
}

TEST_F(GpuDevice, NothingIsFineToo) {
  Tensor empty = device().allocate(stream(), MemoryKind::data, DType::f32, 0, 7);
  device().upload(stream(), empty, {});
  device().download(stream(), empty, {});
  device().release(stream(), empty);
  device().synchronize();
}

TEST_F(GpuDevice, PoisonedMemoryIsNaN) {
  start({.world_size = 1, .poison = true});
  Tensor tensor = bytes(1000);
  EXPECT_THAT(downloaded(stream(), tensor, 1000), Each(std::byte{0xff}));
  device().release(stream(), tensor);
  device().synchronize();
}

// What is common to all devices is tested with the CPU's (cpu_stream_test.cc).
TEST_F(GpuDevice, WhatDoesNotFitOrIsReleasedIsNotUsed) {
  Tensor tensor = bytes(10), copy = tensor;
  EXPECT_THROW(device().upload(stream(), tensor, random_bytes(11, 1)), std::logic_error);
  device().release(stream(), tensor);
  EXPECT_THROW(device().kernels().issue(stream(), kernel::Fill{copy, 1}), std::logic_error);
  EXPECT_THROW(device().upload(stream(), copy, random_bytes(2, 1)), std::logic_error);
  EXPECT_THROW(downloaded(stream(), copy, 2), std::logic_error);
  device().synchronize();
  EXPECT_EQ(backend_->guard().failure(), "");
}

using GpuStream = GpuDevice;

// A chain that goes from one stream to the other and back: each adds its copy behind what the other made.
TEST_F(GpuStream, WaitsOrderWhatTwoStreamsDo) {
  constexpr size_t kPiece = 4096;
  constexpr int kPieces = 64;
  const auto first = random_bytes(kPiece, 5);
  Tensor chain = bytes(kPiece * kPieces);
  device().upload(stream(), chain, first);
  EventRef before = stream().record();
  for (int i = 1; i < kPieces; ++i) {
    CudaStream& on = i % 2 == 0 ? stream() : other();
    on.wait(before);
    on.give([&](cudaStream_t at) {
      std::byte* const to = address(chain) + i * kPiece;
      STP_CUDA(cudaMemcpyAsync(to, to - kPiece, kPiece, cudaMemcpyDeviceToDevice, at));
    });
    before = on.record();
  }
  stream().wait(before);
  const auto found = downloaded(stream(), chain, kPiece * kPieces);
  for (int i = 0; i < kPieces; ++i)
    EXPECT_TRUE(std::equal(first.begin(), first.end(), found.begin() + i * kPiece)) << i;
}

// What is allocated on one stream and released on another, with the program's events between.
TEST_F(GpuStream, MemoryMayGoFromStreamToStream) {
  for (int round = 0; round < 50; ++round) {
    const auto sent = random_bytes(10000, round);
    Tensor tensor = device().allocate(stream(), MemoryKind::communication, DType::bf16, 1, 5000);
    device().upload(stream(), tensor, sent);
    other().wait(stream().record());
    Tensor copy = device().allocate(other(), MemoryKind::communication, DType::bf16, 1, 5000);
    other().give([&](cudaStream_t at) {
      STP_CUDA(cudaMemcpyAsync(address(copy), address(tensor), 10000, cudaMemcpyDeviceToDevice, at));
    });
    device().release(other(), tensor);
    EXPECT_EQ(downloaded(other(), copy, 10000), sent);
    device().release(other(), copy);
  }
  device().synchronize();
  EXPECT_EQ(device().memory().held(), 0U);
}

TEST_F(GpuStream, EventsHaveTimesOnOneClock) {
  Tensor tensor = bytes(1 << 20);
  std::vector<EventRef> events{stream().record()};
  for (int i = 0; i < 20; ++i) {
    CudaStream& on = i % 2 == 0 ? other() : stream();
    on.wait(events.back());
    on.give([&](cudaStream_t at) { STP_CUDA(cudaMemsetAsync(address(tensor), i, 1 << 20, at)); });
    events.push_back(on.record());
  }
  device().synchronize();
  EXPECT_GE(events.front()->seconds(), 0);
  for (size_t i = 1; i < events.size(); ++i) EXPECT_GT(events[i]->seconds(), events[i - 1]->seconds()) << i;
}

// The fake device aborts where a real one would have the host wait in a call; it goes on where it is asked.
TEST_F(GpuStream, TakesMoreWorkThanTheGpuHoldsAtOnce) {
  start({.world_size = 1, .poison = true});
  Tensor tensor = bytes(2);
  for (int i = 0; i <= 20000; ++i)
    stream().give([&](cudaStream_t at) { STP_CUDA(cudaMemsetAsync(address(tensor), i % 251, 2, at)); });
  for (int i = 0; i < 500; ++i) {  // and what takes several calls each
    Tensor other = bytes(2);
    device().release(stream(), other);
  }
  EXPECT_THAT(downloaded(stream(), tensor, 2), Each(static_cast<std::byte>(20000 % 251)));
}

TEST_F(GpuStream, ErrorsOfTheRuntimeAreThrownAtTheCallWithItsNameAndPlace) {
  const auto free_nothing = [](cudaStream_t at) { STP_CUDA(cudaFreeAsync(reinterpret_cast<void*>(8), at)); };
  EXPECT_THAT(error_of<CudaError>([&] { other().give(free_nothing); }),
              AllOf(HasSubstr("cudaFreeAsync: cudaError"), HasSubstr(" at cuda_device_test.cc:")));
  device().synchronize();
}

TEST_F(GpuStream, AFailedRunGivesNothingToTheGpuAnyMore) {
  Tensor tensor = bytes(4);
  device().synchronize();
  backend_->guard().fail("enough");
  stream().give([](cudaStream_t) { FAIL(); });
  stream().wait(other().record());
  EXPECT_THROW(downloaded(stream(), tensor, 4), Cancelled);
  device().release(stream(), tensor);  // as who unwinds may do
}

}  // namespace
}  // namespace stp::cuda
