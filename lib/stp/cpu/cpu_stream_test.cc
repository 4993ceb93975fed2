// Order within and between streams, memory in stream order, and what a failure does.
#include "stp/cpu/cpu_stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <future>
#include <memory>
#include <mutex>
#include <numeric>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

#include "stp/cpu/cpu_backend.h"
#include "stp/cpu/workers.h"
#include "stp/device/kernels.h"
#include "support/refusal.h"

namespace stp::cpu {
namespace {

using testing::HasSubstr;

class CpuStreams : public testing::Test {
 protected:
  std::unique_ptr<Stream> stream(int rank, const std::string& name) {
    return backend->device(rank).make_stream(name, StreamPriority::compute);
  }

  std::unique_ptr<Backend> backend =
      make_backend({.world_size = 2, .deadline_s = 3600, .memory_limit = 4096, .poison = true});
  Device& device = backend->device(0);
};

// More tasks than a queue holds: the host waits for free slots.
TEST_F(CpuStreams, TasksRunInOrder) {
  const auto compute = stream(0, "compute");
  std::vector<int> order, expected(10000);
  std::iota(expected.begin(), expected.end(), 0);
  for (const int i : expected) cpu_stream(*compute).enqueue([&order, i] { order.push_back(i); });
  device.synchronize();
  EXPECT_EQ(order, expected);
}

// `shared` has no lock: only the events keep the streams of two ranks from using it at once.
TEST_F(CpuStreams, EventsOrderStreams) {
  const auto a = stream(0, "compute"), b = stream(1, "compute");
  std::vector<int> shared, expected(2000);
  std::iota(expected.begin(), expected.end(), 0);
  for (const int i : expected) {
    Stream &here = i % 2 == 0 ? *a : *b, &there = i % 2 == 0 ? *b : *a;
    cpu_stream(here).enqueue([&shared, i] { shared.push_back(i); });
    there.wait(here.record());
  }
  backend->device(0).synchronize();
  backend->device(1).synchronize();
  EXPECT_EQ(shared, expected);
}

TEST_F(CpuStreams, ShareAThreadPerProcessor) {
  std::mutex mutex;
  std::set<std::thread::id> threads;
  std::vector<std::unique_ptr<Stream>> streams(50);
  for (auto& each : streams) each = stream(0, "tp");
  for (int round = 0; round < 20; ++round)
    for (size_t i = 0; i < streams.size(); ++i) {
      cpu_stream(*streams[i]).enqueue([&] {
        const std::lock_guard lock(mutex);
        threads.insert(std::this_thread::get_id());
      });
      streams[(i + 1) % streams.size()]->wait(streams[i]->record());
    }
  device.synchronize();
  EXPECT_LE(threads.size(), std::max(1U, std::thread::hardware_concurrency()));
}

// Of more streams than threads, all but the last wait for the last.
TEST_F(CpuStreams, TasksThatWaitByThemselvesHoldNobodyUp) {
  std::promise<void> gate;
  const std::shared_future<void> opened = gate.get_future().share();
  std::vector<std::unique_ptr<Stream>> streams(std::thread::hardware_concurrency() + 3);
  for (auto& each : streams) each = stream(0, "tp");
  for (size_t i = 0; i + 1 < streams.size(); ++i)
    cpu_stream(*streams[i]).enqueue_waiting([opened] { opened.wait(); });
  cpu_stream(*streams.back()).enqueue([&gate] { gate.set_value(); });
  EXPECT_NO_THROW(device.synchronize());
}

TEST(Workers, WhatIsReadyOnceItsNameIsSoughtIsNoFailure) {
  struct Late : Awaited {
    [[nodiscard]] bool ready() const override { return is; }
    [[nodiscard]] std::string text() const override {
      is = true;
      return " waits for nobody";
    }
    mutable std::atomic<bool> is{false};
  };
  RunGuard guard(std::chrono::duration<double>(-1));  // over from the start
  bool performed = false;
  {
    Workers workers(guard);
    Workers::Queue queue(
        workers, [](const Task& task) { task.run(); }, [](std::optional<uint32_t>) { return ""; });
    queue.push({Task::Kind::computes, [] {}, nullptr, {}});  // it starts a thread
    queue.push({Task::Kind::computes, [&] { performed = true; }, std::make_shared<Late>(), {}});
  }
  EXPECT_TRUE(performed);
  EXPECT_EQ(guard.failure(), "");
}

TEST_F(CpuStreams, EventsHaveTimesInOrder) {
  const auto compute = stream(0, "compute");
  std::promise<void> gate;
  cpu_stream(*compute).enqueue([&] { gate.get_future().wait(); });
  const EventRef first = compute->record(), second = compute->record();
  EXPECT_THROW((void)first->seconds(), std::logic_error);
  gate.set_value();
  device.synchronize();
  EXPECT_GE(first->seconds(), 0);
  EXPECT_GE(second->seconds(), first->seconds());
}

TEST_F(CpuStreams, AnEventIsOfItsTimeAndAFenceOfTheLastWork) {
  const auto compute = stream(0, "compute");
  const EventRef first = compute->record();
  device.synchronize();
  const auto late = std::chrono::milliseconds(20);
  std::this_thread::sleep_for(late);
  EXPECT_EQ(compute->fence(), first);
  const EventRef second = compute->record();
  device.synchronize();
  EXPECT_GE(second->seconds() - first->seconds(), std::chrono::duration<double>(late).count());
  EXPECT_EQ(compute->fence(), second);
  cpu_stream(*compute).enqueue([] {});
  EXPECT_NE(compute->fence(), second);
}

TEST_F(CpuStreams, AThrowingTaskFailsTheRunAndNoLaterTaskBegins) {
  backend->describe_with([](int rank, uint32_t op) {
    return "op " + std::to_string(op) + " as rank " + std::to_string(rank) + " calls it";
  });
  const auto a = stream(1, "compute"), b = stream(0, "tp");
  std::atomic<bool> later{false};
  a->begin(7);
  cpu_stream(*a).enqueue([] { throw std::runtime_error("no luck"); });
  a->begin(8);
  cpu_stream(*a).enqueue([&] { later = true; });
  b->wait(a->record());
  cpu_stream(*b).enqueue([&] { later = true; });
  // Both ranks' waits end, though deadlines are an hour away.
  EXPECT_THROW(backend->device(1).synchronize(), Cancelled);
  EXPECT_THROW(backend->device(0).synchronize(), Cancelled);
  EXPECT_EQ(backend->guard().failure(), "rank 1, compute, op 7 as rank 1 calls it: no luck");
  EXPECT_FALSE(later);
}

TEST_F(CpuStreams, ADeviceThatFailedTakesCallsAndDoesNothing) {
  const auto compute = stream(0, "compute");
  Tensor tensor = device.allocate(*compute, MemoryKind::working, DType::f32, 1, 1);
  backend->guard().fail("elsewhere");
  for (int i = 0; i < 10000; ++i) EXPECT_NO_THROW(cpu_stream(*compute).enqueue([] { FAIL(); }));
  EXPECT_NO_THROW(device.release(*compute, tensor));
  std::vector<std::byte> read(4);
  tensor = device.allocate(*compute, MemoryKind::working, DType::f32, 1, 1);
  EXPECT_THROW(device.download(*compute, tensor, read), Cancelled);
}

TEST_F(CpuStreams, TheMemoryLimitHoldsInTheOrderOfTheCalls) {
  const auto compute = stream(0, "compute");
  Tensor most = device.allocate(*compute, MemoryKind::saved, DType::f64, 1, 512);  // all there is
  device.release(*compute, most);
  most = device.allocate(*compute, MemoryKind::saved, DType::f64, 1, 512);  // after the release: fits
  EXPECT_THAT(
      error_of<std::runtime_error>([&] { device.allocate(*compute, MemoryKind::working, DType::f32, 1, 1); }),
      HasSubstr("out of memory: 4 bytes (working) requested, limit 4096"));
}

TEST_F(CpuStreams, UseAfterReleaseIsRefusedAtTheCall) {
  const auto compute = stream(0, "compute");
  Tensor tensor = device.allocate(*compute, MemoryKind::working, DType::f32, 2, 2);
  Tensor copy = tensor;
  device.release(*compute, tensor);
  EXPECT_FALSE(tensor);
  EXPECT_THROW(device.kernels().issue(*compute, kernel::Fill{copy, 1}), std::logic_error);
  EXPECT_THROW(device.release(*compute, tensor), std::logic_error);
  EXPECT_THROW(device.release(*compute, copy), std::logic_error);
  EXPECT_THROW(device.retag(copy, MemoryKind::saved), std::logic_error);
}

// A reused block holds NaN, not its previous contents.
TEST_F(CpuStreams, ReusedMemoryIsPoisoned) {
  const auto compute = stream(0, "compute");
  const std::vector<double> ones(8, 1);
  for (int round = 0; round < 3; ++round) {
    Tensor tensor = device.allocate(*compute, MemoryKind::working, DType::f64, 2, 4);
    for (const double value : download<double>(device, *compute, tensor)) EXPECT_TRUE(std::isnan(value));
    device.upload(*compute, tensor, std::as_bytes(std::span(ones)));
    EXPECT_EQ(download<double>(device, *compute, tensor), ones);
    device.release(*compute, tensor);
  }
}

TEST_F(CpuStreams, UploadsCopyTheirInputAtTheCall) {
  const auto compute = stream(0, "compute");
  std::promise<void> gate;
  cpu_stream(*compute).enqueue([&] { gate.get_future().wait(); });
  const Tensor tensor = device.allocate(*compute, MemoryKind::data, DType::i32, 1, 3);
  std::vector<int32_t> values{1, 2, 3};
  device.upload(*compute, tensor, std::as_bytes(std::span(values)));
  values.assign(3, 0);
  gate.set_value();
  EXPECT_THAT(download<int32_t>(device, *compute, tensor), testing::ElementsAre(1, 2, 3));
}

TEST_F(CpuStreams, MemoryIsAlignedAndTyped) {
  const auto compute = stream(0, "compute");
  for (const int64_t columns : {0, 1, 3, 17}) {
    const Tensor tensor = device.allocate(*compute, MemoryKind::working, DType::f32, 1, columns);
    device.synchronize();
    EXPECT_EQ(reinterpret_cast<uintptr_t>(data<float>(tensor)) % 64, 0U);
    EXPECT_THROW(data<double>(tensor), std::logic_error);
  }
  EXPECT_EQ(device.memory().held(), 21U * 4);
  EXPECT_EQ(data<float>(Tensor{}), nullptr);
  const std::vector<std::byte> five(5);
  const Tensor one = device.allocate(*compute, MemoryKind::working, DType::f32, 1, 1);
  EXPECT_THROW(device.upload(*compute, one, five), std::logic_error);
  EXPECT_THROW(device.allocate(*compute, MemoryKind::working, DType::f32, -1, 1), std::logic_error);
}

}  // namespace
}  // namespace stp::cpu
