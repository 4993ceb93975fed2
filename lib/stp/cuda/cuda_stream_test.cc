// What only a device under the test's control can show of the CUDA backend: that it holds nothing too long,
// gives the GPU no more than it takes, names what does not move, and is right in whatever order streams go
// on.
#include "stp/cuda/cuda_stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <optional>
#include <string>
#include <thread>

#include "stp/cuda/cuda_run.h"
#include "stp/cuda/kernels/emulated_link.h"
#include "stp/device/kernels.h"
#include "stp/emulation/emulated_group.h"
#include "support/cuda_on_host.h"
#include "support/effort.h"
#include "support/fake_cublas_lt.h"
#include "support/refusal.h"

namespace stp::cuda {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

using testing_support::CudaOnHost;

TEST_F(CudaOnHost, ReleasedMemoryIsUsedAgain) {
  const size_t before = fake_cuda::allocated_bytes();
  start({.deadline_s = kNever, .poison = true});
  for (int round = 0; round < 10; ++round) {
    Tensor a = bytes(1024), b = bytes(512);
    device().release(stream(), a);
    device().release(stream(), b);
    Tensor c = bytes(1024);  // a's, before the stream has come to the release
    device().release(stream(), c);
    if (round % 3 == 0) device().synchronize();
  }
  device().synchronize();
  EXPECT_EQ(fake_cuda::allocated_bytes() - before, 1536U);
}

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
  start({.deadline_s = kNever});
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
  start({.deadline_s = kNever});
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

// An environment variable that is as it was when this is gone.
class Restored {
 public:
  explicit Restored(const char* name) : name_(name) {
    if (const char* value = getenv(name)) before_ = value;
  }
  Restored(const Restored&) = delete;
  Restored& operator=(const Restored&) = delete;
  ~Restored() {
    if (before_) {
      setenv(name_, before_->c_str(), 1);
    } else {
      unsetenv(name_);
    }
  }

 private:
  const char* const name_;
  std::optional<std::string> before_;
};

// Streams do not share a queue.
TEST_F(CudaOnHost, TheDriverIsSetUpBeforeItIsFirstAskedUnlessTheUserSaysElse) {
  const char* const name = "CUDA_DEVICE_MAX_CONNECTIONS";
  const Restored restored(name);
  unsetenv(name);
  std::string seen = "nothing";
  fake_cuda::watch("cudaDriverGetVersion", [&] {
    const char* value = getenv(name);
    seen = value == nullptr ? "" : value;
  });
  const char* const loading = "CUDA_MODULE_LOADING";
  const Restored loading_restored(loading);
  unsetenv(loading);
  EXPECT_EQ(lack_of_gpu(), "");
  EXPECT_EQ(seen, "32");
  EXPECT_EQ(getenv(loading), nullptr) << "only NCCL needs it";
  setenv(name, "8", 1);
  EXPECT_EQ(lack_of_gpu(), "");
  EXPECT_STREQ(getenv(name), "8");
}

// The host may wait, with all streams idle, between taking an alarm and launching the kernel that rings it.
TEST_F(CudaOnHost, AnAlarmHoldsUntilItsKernelIsLaunchedHoweverLongThatTakes) {
  start({.deadline_s = kNever});
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
  start({.deadline_s = kNever});
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
  start({.deadline_s = kNever});
  fake_cuda::fail_next("cudaMallocAsync", cudaErrorMemoryAllocation);
  EXPECT_EQ(error_of<std::runtime_error>([&] { bytes(1000); }),
            "out of memory: the GPU has no 1000 bytes more");
}

// The fake device aborts where a real one would have the host wait in a call; it goes on where it is asked.
TEST_F(CudaOnHost, GivesTheGpuNoMoreThanItTakes) {
  start({.deadline_s = kNever, .poison = true});
  Tensor tensor = bytes(2);
  for (int i = 0; i <= 4000; ++i) set(tensor, i % 251);
  for (int i = 0; i < 500; ++i) {  // and what takes several calls each
    Tensor other = bytes(2);
    device().release(stream(), other);
  }
  std::vector<std::byte> found(2);
  device().download(stream(), tensor, found);
  EXPECT_THAT(found, Each(static_cast<std::byte>(4000 % 251)));
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
  start({.deadline_s = kNever});
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
  start({.deadline_s = kNever});
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
  start({.deadline_s = kNever});
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

TEST_F(CudaOnHost, AnEmulatedCallSaysInSecondsHowLateItWas) {
  const auto backend =
      make_replay_backend({.world_size = 2, .deadline_s = kNever},
                          {.rank = 0, .times = [](CallKind, double, const std::vector<int>&) {
                             return CallTime{5e-6, 0};
                           }});
  {
    Device& own = backend->device(0);
    const auto on = own.make_stream("send to rank 1", StreamPriority::communication);
    const auto group = backend->group("pp", {0, 1}, GroupUse::transfers);
    auto& emulated = dynamic_cast<EmulatedGroup&>(*group);
    Tensor tensor = own.allocate(*on, MemoryKind::working, DType::f32, 1, 4);
    const std::vector<Part> parts{{on.get(), tensor, {}}};
    for (int round = 0; round < 2; ++round) {
      for (int i = 0; i < 600; ++i) group->transfer(parts);
      own.synchronize();
      const EmulatedUse use = emulated.take_use();
      EXPECT_EQ(use.calls, 600);
      EXPECT_NEAR(use.late_s, 600 * 15e-6, 600 * 1e-6);  // two steps of the device, 10 µs each
      EXPECT_NEAR(use.latest_s, 15e-6, 1e-6);
      EXPECT_EQ(use.link_bytes, static_cast<size_t>(2 * kLinkPiece));  // of one block
    }
    EXPECT_EQ(fake_cuda::calls("cudaHostAlloc"), 1U) << "for kernels' alarms";
    own.release(*on, tensor);
    own.synchronize();
  }
}

TEST_F(CudaOnHost, EventsAreUsedAgain) {
  start({.deadline_s = kNever});
  for (int i = 0; i < 1000; ++i) {
    stream().record();
    if (i % 100 == 99) device().synchronize();
  }
  EXPECT_LE(fake_cuda::calls("cudaEventCreateWithFlags"), 300U);
}

// A training step's shape, without its kernels: four ranks, tp 2 x pp 2. On every rank work on the compute
// stream, all-reduces on another, transfers down and up the pipeline on two more, receives posted early,
// memory taken on one stream and given back on another. Whatever the order in which the device's streams go
// on, what comes out is what plain sums say.
class Pipeline {
 public:
  explicit Pipeline(Backend& backend) {
    for (int rank = 0; rank < 4; ++rank) {
      const auto stream = [&](const char* name, StreamPriority priority) {
        return backend.device(rank).make_stream(name, priority);
      };
      ranks_.push_back({backend.device(rank), stream("compute", StreamPriority::compute),
                        stream("tp", StreamPriority::communication),
                        stream("p2p", StreamPriority::communication)});
    }
    for (int i = 0; i < 2; ++i) {
      reduces_.push_back(backend.group("tp", {2 * i, 2 * i + 1}));
      down_.push_back(backend.group("p2p", {i, 2 + i}, GroupUse::transfers));
      up_.push_back(backend.group("p2p", {2 + i, i}, GroupUse::transfers));
    }
  }

  // Of each microbatch m: rank tp of the first stage makes tp + 10 m + 1, and all-reduces it; the second
  // makes a half of what came and of one, and all-reduces that; it goes back up.
  [[nodiscard]] int64_t wrong(int microbatches) {
    std::vector<std::array<Tensor, 2>> back(microbatches);
    for (int m = 0; m < microbatches; ++m) {
      std::array<Tensor, 2> made, came, halves;
      for (int tp = 0; tp < 2; ++tp) made[tp] = value(tp, static_cast<float>(tp + 10 * m + 1));
      all_reduce(0, made);
      transfer(down_, 0, 2, made, came);
      for (int tp = 0; tp < 2; ++tp) {
        const int rank = 2 + tp;
        halves[tp] = value(rank, 0.5F);
        Stream& compute = *ranks_[rank].compute;
        compute.wait(ranks_[rank].p2p->record());
        cuda_stream(compute).give([&](cudaStream_t at) {
          fake_cuda::launch(at, [from = data<float>(came[tp]), to = data<float>(halves[tp])] {
            for (int64_t i = 0; i < kLength; ++i) to[i] += from[i] / 2;
          });
        });
        ranks_[rank].device.release(compute, came[tp]);
      }
      all_reduce(1, halves);
      transfer(up_, 2, 0, halves, back[m]);
    }
    int64_t wrong = 0;
    for (int m = 0; m < microbatches; ++m)
      for (int tp = 0; tp < 2; ++tp) {
        std::vector<float> found(kLength);
        ranks_[tp].device.download(*ranks_[tp].p2p, back[m][tp], std::as_writable_bytes(std::span(found)));
        const auto expected = static_cast<float>(1 + 2 + 20 * m + 1);
        wrong += std::count_if(found.begin(), found.end(), [&](float each) { return each != expected; });
        ranks_[tp].device.release(*ranks_[tp].p2p, back[m][tp]);
      }
    for (Rank& rank : ranks_) rank.device.synchronize();
    return wrong;
  }

 private:
  static constexpr int64_t kLength = 37;
  struct Rank {
    Device& device;
    std::unique_ptr<Stream> compute, tp, p2p;
  };
  using Groups = std::vector<std::unique_ptr<Group>>;

  Tensor value(int rank, float value) {
    const Rank& on = ranks_[rank];
    Tensor made = on.device.allocate(*on.compute, MemoryKind::working, DType::f32, 1, kLength);
    const std::vector<float> all(kLength, value);
    on.device.upload(*on.compute, made, std::as_bytes(std::span(all)));
    return made;
  }
  void all_reduce(int stage, const std::array<Tensor, 2>& tensors) {
    std::vector<Part> parts;
    for (int tp = 0; tp < 2; ++tp) {
      const Rank& rank = ranks_[2 * stage + tp];
      rank.tp->wait(rank.compute->record());
      parts.push_back({rank.tp.get(), tensors[tp], tensors[tp]});
    }
    reduces_[stage]->all_reduce(Reduce::sum, parts);
  }
  void transfer(const Groups& groups, int from, int to, std::array<Tensor, 2>& sent,
                std::array<Tensor, 2>& received) {
    for (int tp = 0; tp < 2; ++tp) {
      const Rank &sender = ranks_[from + tp], &receiver = ranks_[to + tp];
      received[tp] =
          receiver.device.allocate(*receiver.p2p, MemoryKind::communication, DType::f32, 1, kLength);
      sender.p2p->wait(sender.tp->record());
      const std::vector<Part> parts{{sender.p2p.get(), sent[tp], {}}, {receiver.p2p.get(), {}, received[tp]}};
      groups[tp]->transfer(parts);
      sender.device.release(*sender.p2p, sent[tp]);
    }
  }

  std::vector<Rank> ranks_;
  Groups reduces_, down_, up_;
};

TEST_F(CudaOnHost, AnyOrderOfStreamsGivesTheSame) {
  for (uint32_t seed = 1; seed <= 40; seed += kStride) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    fake_cuda::reset(seed);
    const auto backend = cuda::make_backend({.world_size = 4, .deadline_s = kNever, .poison = true});
    EXPECT_EQ(Pipeline(*backend).wrong(8), 0);
    EXPECT_EQ(backend->guard().failure(), "");
    for (int rank = 0; rank < 4; ++rank) EXPECT_EQ(backend->device(rank).memory().held(), 0U);
  }
}

}  // namespace
}  // namespace stp::cuda
