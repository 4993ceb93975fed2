// What only a device under the test's control can show of the CUDA backend: that it holds nothing too long,
// gives the GPU no more than it takes, names what does not move, and is right in whatever order streams go
// on.
#include "stp/cuda/cuda_stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <thread>

#include "stp/cuda/cuda_run.h"
#include "stp/cuda/kernels/emulated_link.h"
#include "stp/device/kernels.h"
#include "stp/emulation/emulated_group.h"
#include "support/cuda_on_host.h"
#include "support/fake_cublas_lt.h"
#include "support/refusal.h"

namespace stp::cuda {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

using testing_support::CudaOnHost;

// Memory that one stream gives back another takes only if it has waited for that anyway, but then at once.
TEST_F(CudaOnHost, MemoryGoesToOtherStreamsBehindTheirWaits) {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    start({.deadline_s = kNever});
    fake_cuda::reset(seed);
    const auto other = device().make_stream("send", StreamPriority::communication);
    Tensor sent = bytes(512), received = bytes(512);
    set(sent, 1);
    other->wait(stream().record());
    for (int i = 0; i < 5; ++i) set(received, 0, *other);  // it takes its time
    cuda_stream(*other).give([&](cudaStream_t at) {
      STP_CUDA(cudaMemcpyAsync(address(received), address(sent), 512, cudaMemcpyDeviceToDevice, at));
    });
    const std::byte* const was_at = address(sent);
    device().release(*other, sent);
    const Tensor before = bytes(512);
    EXPECT_NE(address(before), was_at);
    stream().wait(other->record());
    Tensor next = bytes(512);
    EXPECT_EQ(address(next), was_at);
    set(next, 2);
    std::vector<std::byte> found(512);
    device().download(*other, received, found);
    EXPECT_THAT(found, Each(std::byte{1})) << seed;
    device().synchronize();
  }
}

TEST_F(CudaOnHost, MemoryOfSizesThatAreNotUsedAnyMoreIsGivenBackToTheDevice) {
  const size_t before = fake_cuda::allocated_bytes();
  for (int step = 0; step < 6; ++step) {
    Tensor tensor = bytes(step == 0 ? 10240 : 1024);
    set(tensor, 1);
    device().release(stream(), tensor);
    device().synchronize();
  }
  EXPECT_EQ(fake_cuda::allocated_bytes() - before, 1024U);
}

// Kernels' scratch is no tensor's: it is taken once, stays, and counts for the limit.
TEST_F(CudaOnHost, ScratchIsCountedApartFromTensors) {
  for (const size_t limit : {size_t{0}, size_t{100} << 10}) {
    start({.deadline_s = kNever, .memory_limit = limit});
    Tensor total = device().allocate(stream(), MemoryKind::working, DType::f64, 1, 1),
           values = device().allocate(stream(), MemoryKind::working, DType::f32, 1, 20000);
    const auto sum = [&] { device().kernels().issue(stream(), kernel::AddSumOfSquares{1, values, total}); };
    sum();
    const size_t scratch = device().memory().scratch();
    EXPECT_GT(scratch, 0U);
    EXPECT_EQ(device().memory().held(), 80008U);
    sum();
    device().synchronize();
    EXPECT_EQ(device().memory().scratch(), scratch);
    if (limit > 0) {
      const auto rest = static_cast<int64_t>(limit - 80008);  // fits beside the tensors alone
      EXPECT_THAT(error_of<std::runtime_error>([&] { bytes(rest); }),
                  HasSubstr("scratch " + std::to_string(scratch)));
    }
    stream_.reset();
    EXPECT_EQ(device().memory().scratch(), 0U) << "it ends with its stream";
  }
}

TEST_F(CudaOnHost, UploadsThatTheGpuHasDoneHoldNoEvents) {
  const Tensor tensor = bytes(96);
  const std::vector<std::byte> values(96);
  const size_t before = fake_cuda::calls("cudaEventCreateWithFlags");
  for (int i = 0; i < 200; ++i) {
    device().upload(stream(), tensor, values);
    device().synchronize();
  }
  EXPECT_LT(fake_cuda::calls("cudaEventCreateWithFlags") - before, 100U);
}

// As weights are: they are never released.
TEST_F(CudaOnHost, WhatIsNeverReleasedEndsWithItsBackend) {
  const size_t before = fake_cuda::allocated_bytes();
  for (int i = 0; i < 2; ++i) {
    start({.deadline_s = kNever});
    Tensor weights = bytes(1024), released = bytes(512);
    device().release(stream(), released);
    device().synchronize();
    EXPECT_EQ(fake_cuda::allocated_bytes() - before, 1536U);
    stream_.reset();
    backend_.reset();
    EXPECT_EQ(fake_cuda::allocated_bytes(), before);
    EXPECT_EQ(fake_cuda::pool_bytes(), before) << "the pool is trimmed when all is freed";
  }
}

TEST_F(CudaOnHost, AFailedRunGivesBackWhatTheGpuHasDoneWith) {
  for (const bool at_work : {true, false}) {
    const size_t before = fake_cuda::allocated_bytes();
    start({.deadline_s = kNever});
    Tensor weights = bytes(1024);
    device().synchronize();
    fake_cuda::hold(at_work);
    if (at_work) set(weights, 1);
    backend_->guard().fail("something");
    stream_.reset();
    const size_t freed = fake_cuda::calls("cudaFreeHost");
    const int handles = fake_cublas_lt::state().alive;
    backend_.reset();
    EXPECT_EQ(handles - fake_cublas_lt::state().alive, at_work ? 0 : 1) << "it would wait for the GPU";
    EXPECT_EQ(fake_cuda::calls("cudaFreeHost") - freed, at_work ? 0U : 1U) << "it would wait for the GPU";
    EXPECT_EQ(fake_cuda::allocated_bytes() - before, at_work ? 1024U : 0U);
    fake_cuda::hold(false);
  }
}

TEST_F(CudaOnHost, WorkIsIssuedOnItsOwnGpuWhateverElseIsAsked) {
  device().synchronize();
  EXPECT_GT(gpu_memory(1), 0);
  int gpu = -1;
  stream().give([&](cudaStream_t) { STP_CUDA(cudaGetDevice(&gpu)); });
  EXPECT_EQ(gpu, 0);
}

// A thread begins with GPU 0, whatever others have set.
TEST_F(CudaOnHost, EveryThreadIsGivenItsGpu) {
  const auto set_and_ask = [](int gpu) {
    set_current_gpu(gpu);
    int current = -1;
    STP_CUDA(cudaGetDevice(&current));
    return current;
  };
  EXPECT_EQ(set_and_ask(1), 1);
  int of_other = -1;
  std::thread([&] { of_other = set_and_ask(1); }).join();
  EXPECT_EQ(of_other, 1);
  EXPECT_EQ(set_and_ask(0), 0);
  EXPECT_EQ(set_and_ask(1), 1);
  for (int i = 0; i < 2; ++i) EXPECT_THROW(set_current_gpu(7), CudaError);
  EXPECT_EQ(set_and_ask(1), 1);
  EXPECT_EQ(set_and_ask(0), 0);
}

// In a process of its own, whose environment it changes.
[[noreturn]] void ask_the_driver() {
  const char *const name = "CUDA_DEVICE_MAX_CONNECTIONS", *const loading = "CUDA_MODULE_LOADING";
  unsetenv(name);
  unsetenv(loading);
  std::string seen = "nothing";
  fake_cuda::watch("cudaDriverGetVersion", [&] {
    const char* value = getenv(name);
    seen = value == nullptr ? "" : value;
  });
  EXPECT_EQ(lack_of_gpu(), "");
  EXPECT_EQ(seen, "32");
  EXPECT_EQ(getenv(loading), nullptr) << "only NCCL needs it";
  setenv(name, "8", 1);
  EXPECT_EQ(lack_of_gpu(), "");
  EXPECT_STREQ(getenv(name), "8");
  std::_Exit(testing::Test::HasFailure() ? 1 : 0);
}

// Streams do not share a queue.
TEST_F(CudaOnHost, TheDriverIsSetUpBeforeItIsFirstAskedUnlessTheUserSaysElse) {
  EXPECT_EXIT(ask_the_driver(), testing::ExitedWithCode(0), "");
}

// The host may wait, with all streams idle, between taking an alarm and launching the kernel that rings it.
TEST_F(CudaOnHost, AnAlarmHoldsUntilItsKernelIsLaunchedHoweverLongThatTakes) {
  CudaRun& run = device().run();
  const auto first = run.alarm("what the test found, in words that are too long to be stored in place");
  run.wait_until([] { return true; }, [] { return ""; });
  const auto second = run.alarm("another");
  EXPECT_NE(first.second, second.second);
  *first.first = first.second;
  EXPECT_THROW(run.wait_until([] { return false; }, [] { return ""; }), Cancelled);
  EXPECT_EQ(failure(), "what the test found, in words that are too long to be stored in place");
}

TEST_F(CudaOnHost, AlarmsOfWorkThatIsDoneAreForgotten) {
  CudaRun& run = device().run();
  Tensor tensor = bytes(512);
  const int32_t first = run.alarm("first").second;
  device().synchronize();
  EXPECT_EQ(run.alarm("second").second, first);
  fake_cuda::hold(true);
  set(tensor, 1);
  run.forget_alarms();
  EXPECT_NE(run.alarm("third").second, first) << "the kernel of the second may be at work";
  fake_cuda::hold(false);
  device().synchronize();
}

TEST_F(CudaOnHost, AGpuWithoutMemoryIsNamed) {
  fake_cuda::fail_next("cudaMallocAsync", cudaErrorMemoryAllocation);
  EXPECT_EQ(error_of<OutOfMemory>([&] { bytes(1000); }), "out of memory: the GPU has no 1000 bytes more");
  EXPECT_EQ(device().memory().held(), 0U);
}

TEST_F(CudaOnHost, WithoutGraphsTheArgumentsOfALaunchAreNotAskedFor) {
  bool launched = false;
  const auto arguments = [] { return ADD_FAILURE(), std::string(); };
  stream().launch(nullptr, arguments, [&](cudaStream_t) { launched = true; });
  EXPECT_TRUE(launched);
}

TEST_F(CudaOnHost, AHostThatIsTooFarAheadEndsAtTheDeadline) {
  start({.deadline_s = kSoon});
  Tensor tensor = bytes(2);
  device().synchronize();
  fake_cuda::hold(true);
  stream().begin(3);
  for (int i = 0; i < 1000; ++i) set(tensor, 1);
  EXPECT_THAT(failure(), AllOf(HasSubstr("rank 0, compute, op 3 is not done"),
                               HasSubstr("the host waits until the GPU takes more work")));
}

// As after a stop of the whole process: the deadline is over, and the GPU is done before a name is found.
TEST_F(CudaOnHost, WhatIsDoneOnceItsNameIsSoughtIsNoFailure) {
  start({.deadline_s = kSoon});
  CudaRun& run = device().run();
  Tensor tensor = bytes(2);
  device().synchronize();
  fake_cuda::hold(true);
  set(tensor, 1);
  const auto event = std::dynamic_pointer_cast<CudaEvent>(stream().record());
  const auto finish = [&] {
    fake_cuda::hold(false);
    while (!event->passed()) {
    }
    return "nobody";
  };
  // Only the marks that the GPU has passed show that this is ready.
  const auto passes = [&] { return stream().idle(); };
  EXPECT_NO_THROW(run.wait_until(passes, finish));
  EXPECT_EQ(failure(), "");
}

// As of GPipe's first backward, which begins behind the sends of all forwards.
TEST_F(CudaOnHost, ManyWaitsInARowPass) {
  start({.deadline_s = kSoon});
  const auto other = device().make_stream("send", StreamPriority::communication);
  for (int i = 0; i < 600; ++i) stream().wait(other->record());
  EXPECT_EQ(failure(), "");
  device().synchronize();
}

TEST_F(CudaOnHost, WhatTheGpuDoesNotFinishIsNamedAtTheDeadline) {
  start({.deadline_s = kSoon});
  backend_->describe_with([](int, uint32_t op) { return "F0." + std::to_string(op); });
  Tensor tensor = bytes(2);
  device().synchronize();
  fake_cuda::hold(true);
  stream().begin(5);
  set(tensor, 1);
  stream().record();
  stream().begin(6);
  set(tensor, 2);
  EXPECT_THROW(device().synchronize(), Cancelled);
  EXPECT_THAT(backend_->guard().failure(),
              AllOf(HasSubstr("rank 0, compute, F0.5 is not done"),
                    HasSubstr("rank 0, host, waits for compute"), HasSubstr("nothing moved")));
}

TEST_F(CudaOnHost, AGpuThatFailsIsNamed) {
  Tensor tensor = bytes(2);
  device().synchronize();
  fake_cuda::hold(true);
  stream().begin(5);
  set(tensor, 1);
  stream().record();
  fake_cuda::fail_next("cudaEventQuery", cudaErrorIllegalAddress);
  EXPECT_THROW(stream().synchronize(), Cancelled);
  EXPECT_THAT(backend_->guard().failure(),
              AllOf(HasSubstr("rank 0, compute, op 5"), HasSubstr("cudaEventQuery: cudaErrorFake")));
}

// An event that is asked for too early is no error of what comes after.
TEST_F(CudaOnHost, WhatIsNotThereYetLeavesNoError) {
  Tensor tensor = bytes(2);
  device().synchronize();
  fake_cuda::hold(true);
  set(tensor, 1);
  const EventRef event = stream().record();
  EXPECT_THROW(static_cast<void>(event->seconds()), std::logic_error);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  EXPECT_FALSE(dynamic_cast<CudaEvent&>(*event).passed());
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  fake_cuda::hold(false);
  device().synchronize();
  EXPECT_GT(event->seconds(), 0);
}

// The GPU may have passed the last event long before the call: a time that begins there holds the host's
// delay.
TEST_F(CudaOnHost, AnEventIsOfItsTimeAndAFenceOfTheLastWork) {
  Tensor tensor = bytes(512);
  set(tensor, 1);
  const EventRef first = stream().record();
  EXPECT_EQ(stream().fence(), first);
  const EventRef second = stream().record();
  EXPECT_NE(second, first);
  set(tensor, 2);
  EXPECT_NE(stream().fence(), second);
  device().synchronize();
}

// With graphs, too, a call is given when it is made, and its time is its own.
TEST_F(CudaOnHost, AnEmulatedCallSaysInSecondsHowLateItWas) {
  for (const bool graphs : {false, true}) {
    const size_t pinned = fake_cuda::calls("cudaHostAlloc");
    const auto backend =
        make_replay_backend({.world_size = 2, .deadline_s = kNever, .graphs = graphs},
                            {.rank = 0, .times = [](CallKind, double, const std::vector<int>&) {
                               return CallTime{5e-6, 0};
                             }});
    Device& own = backend->device(0);
    const auto on = own.make_stream("send to rank 1", StreamPriority::communication);
    const auto group = backend->group("pp", {0, 1}, GroupUse::transfers);
    auto& emulated = dynamic_cast<EmulatedGroup&>(*group);
    Tensor tensor = own.allocate(*on, MemoryKind::working, DType::f32, 1, 4);
    const std::vector<Part> parts{{on.get(), tensor, {}}};
    for (int round = 0; round < 2; ++round) {
      const size_t events = fake_cuda::calls("cudaEventCreateWithFlags");
      for (int i = 0; i < 600; ++i) {
        group->transfer(parts);
        if (i % 100 == 99) own.synchronize();
      }
      EXPECT_LE(fake_cuda::calls("cudaEventCreateWithFlags") - events, 400U);
      const EmulatedUse use = emulated.take_use();
      EXPECT_EQ(use.calls, 600);
      EXPECT_NEAR(use.late_s, 600 * 15e-6, 600 * 1e-6) << graphs;  // two steps of the device, 10 µs each
      EXPECT_NEAR(use.latest_s, 15e-6, 1e-6);
      EXPECT_EQ(use.link_bytes, static_cast<size_t>(2 * kLinkPiece));  // of one block
    }
    EXPECT_EQ(fake_cuda::calls("cudaHostAlloc") - pinned, 1U) << "for kernels' alarms";
    own.release(*on, tensor);
    own.synchronize();
  }
}

TEST_F(CudaOnHost, EventsAreUsedAgain) {
  for (int i = 0; i < 1000; ++i) {
    stream().record();
    if (i % 100 == 99) device().synchronize();
  }
  EXPECT_LE(fake_cuda::calls("cudaEventCreateWithFlags"), 300U);
}

}  // namespace
}  // namespace stp::cuda
