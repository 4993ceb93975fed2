// What only a device that is told what to do can show of the CUDA backend: that it holds nothing too long,
// gives the GPU no more than it takes, names what does not move, and is right in whatever order streams go
// on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <thread>

#include "stp/cuda/cuda_backend.h"
#include "stp/cuda/cuda_check.h"
#include "stp/cuda/cuda_memory.h"
#include "stp/cuda/cuda_replay.h"
#include "stp/cuda/cuda_run.h"
#include "stp/cuda/cuda_stream.h"
#include "stp/cuda/paced.h"
#include "stp/device/kernels.h"
#include "support/cuda_on_host.h"
#include "support/effort.h"
#include "support/fake_cuda.h"
#include "support/simt_clock.h"

namespace stp::cuda {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

using testing_support::CudaOnHost;
using testing_support::kNever;
using testing_support::kSoon;

TEST_F(CudaOnHost, ReleasedMemoryIsUsedAgain) {
  const size_t before = fake_cuda::allocated_bytes();
  start({.deadline_s = kNever, .poison = true});
  for (int round = 0; round < 10; ++round) {
    Tensor a = bytes(1024), b = bytes(512);
    device().release(stream(), a);
    device().release(stream(), b);
    Tensor c = bytes(1000);  // of a's place, before the stream has come to the release
    device().release(stream(), c);
    if (round % 3 == 0) device().synchronize();
  }
  device().synchronize();
  EXPECT_EQ(fake_cuda::allocated_bytes() - before, 1536U);
}

// Other streams come to a release when they like: until the device is known to have passed it, the memory is
// no one's but of the stream that gave it back.
TEST_F(CudaOnHost, MemoryGoesToOtherStreamsOnlyOnceItIsPassed) {
  const size_t before = fake_cuda::allocated_bytes();
  start({.deadline_s = kNever});
  const auto other = device().make_stream("send", StreamPriority::communication);
  Tensor sent = bytes(512);
  other->wait(stream().record());
  fake_cuda::hold(true);
  device().release(*other, sent);
  Tensor next = bytes(512);
  fake_cuda::hold(false);
  device().synchronize();
  EXPECT_EQ(fake_cuda::allocated_bytes() - before, 1024U);
  Tensor again = bytes(512);
  device().synchronize();
  EXPECT_EQ(fake_cuda::allocated_bytes() - before, 1024U);
}

TEST_F(CudaOnHost, MemoryOfSizesThatAreNotUsedAnyMoreIsGivenBackToTheDevice) {
  const size_t before = fake_cuda::allocated_bytes();
  start({.deadline_s = kNever});
  for (int step = 0; step < 6; ++step) {
    Tensor first = bytes(step == 0 ? 10240 : 1024);
    device().release(stream(), first);
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
    const auto sum = [&] { device().kernels().add_sum_of_squares(stream(), 1, values, total); };
    sum();
    stream().record();
    const size_t scratch = device().memory().scratch();
    EXPECT_GT(scratch, 0U);
    EXPECT_EQ(device().memory().held(), 80008U);
    sum();
    device().synchronize();
    EXPECT_EQ(device().memory().scratch(), scratch);
    if (limit == 0) continue;
    device().allocate(stream(), MemoryKind::working, DType::f32, 1, (limit - 80008) / 4);
    EXPECT_THROW(device().synchronize(), Cancelled)
        << "what fits beside the tensors does not beside the scratch";
    EXPECT_THAT(backend_->guard().failure(), HasSubstr("scratch " + std::to_string(scratch)));
  }
}

// As weights are: nobody releases them.
TEST_F(CudaOnHost, WhatIsNeverReleasedEndsWithItsBackend) {
  const size_t before = fake_cuda::allocated_bytes(), kept = fake_cuda::pools_kept();
  for (int i = 0; i < 2; ++i) {
    start({.deadline_s = kNever});
    Tensor weights = bytes(1024), released = bytes(512);
    device().release(stream(), released);
    device().synchronize();
    EXPECT_EQ(fake_cuda::allocated_bytes() - before, 1536U);
    stream_.reset();
    fake_cuda::reset(1);
    backend_.reset();
    EXPECT_EQ(fake_cuda::calls("cudaFree"), 2U) << "of each slot once, used or not";
    EXPECT_EQ(fake_cuda::allocated_bytes(), before);
    EXPECT_EQ(fake_cuda::pools_kept(), kept);
  }
}

TEST_F(CudaOnHost, AFailedRunGivesBackWhatTheGpuHasDoneWith) {
  for (const bool at_work : {true, false}) {
    const size_t before = fake_cuda::allocated_bytes(), kept = fake_cuda::pools_kept();
    start({.deadline_s = kNever});
    Tensor weights = bytes(1024);
    device().synchronize();
    fake_cuda::hold(at_work);
    if (at_work) set(weights, 1);
    backend_->guard().fail("something");
    stream_.reset();
    const size_t freed = fake_cuda::calls("cudaFreeHost");
    backend_.reset();
    EXPECT_EQ(fake_cuda::calls("cudaFreeHost") - freed, at_work ? 0U : 1U) << "it would wait for the GPU";
    EXPECT_EQ(fake_cuda::allocated_bytes() - before, at_work ? 1024U : 0U);
    EXPECT_EQ(fake_cuda::pools_kept() - kept, at_work ? 1U : 0U);
    fake_cuda::hold(false);
  }
}

TEST_F(CudaOnHost, WorkIsIssuedOnItsOwnGpuWhateverElseIsAsked) {
  start({.deadline_s = kNever});
  device().synchronize();
  EXPECT_GT(gpu_memory(1), 0);
  int gpu = -1;
  stream().enqueue([&](cudaStream_t) { STP_CUDA(cudaGetDevice(&gpu)); });
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

TEST_F(CudaOnHost, TheDriverIsSetUpBeforeItIsFirstAskedUnlessTheUserSaysElse) {
  // Kernels are loaded before their first launch, and streams do not share a queue.
  for (const auto& [name, ours, theirs] : {std::array{"CUDA_MODULE_LOADING", "EAGER", "LAZY"},
                                           std::array{"CUDA_DEVICE_MAX_CONNECTIONS", "32", "8"}}) {
    SCOPED_TRACE(name);
    const Restored restored(name);
    unsetenv(name);
    std::string seen = "nothing";
    fake_cuda::watch("cudaDriverGetVersion", [&, variable = name] {
      const char* value = getenv(variable);
      seen = value == nullptr ? "" : value;
    });
    EXPECT_EQ(lack_of_gpu(), "");
    EXPECT_EQ(seen, ours);
    setenv(name, theirs, 1);
    EXPECT_EQ(lack_of_gpu(), "");
    EXPECT_STREQ(getenv(name), theirs);
  }
}

TEST_F(CudaOnHost, AGpuWithoutMemoryIsNamed) {
  start({.deadline_s = kNever});
  fake_cuda::fail_next("cudaMallocFromPoolAsync", cudaErrorMemoryAllocation);
  stream().begin(7);
  bytes(1000);
  EXPECT_THROW(device().synchronize(), Cancelled);
  EXPECT_EQ(backend_->guard().failure(),
            "rank 0, compute, op 7: out of memory: the GPU has no 1024 bytes more");
}

// The fake device aborts where a real one would have the host wait in a call.
TEST_F(CudaOnHost, GivesTheGpuNoMoreThanItTakes) {
  start({.deadline_s = kNever, .poison = true});
  Tensor tensor = bytes(2);
  fake_cuda::hold(true);
  for (int i = 0; i <= 4000; ++i) set(tensor, i % 251);
  for (int i = 0; i < 20; ++i) {  // and what takes several calls each
    Tensor other = bytes(2);
    device().release(stream(), other);
  }
  fake_cuda::hold(false);
  std::vector<std::byte> found(2);
  device().download(stream(), tensor, found);
  EXPECT_THAT(found, Each(static_cast<std::byte>(4000 % 251)));
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
                    HasSubstr("rank 0, host waits for compute"), HasSubstr("nothing moved")));
}

TEST_F(CudaOnHost, AGpuThatFailsIsNamed) {
  start({.deadline_s = kNever});
  Tensor tensor = bytes(2);
  device().synchronize();
  fake_cuda::hold(true);
  stream().begin(5);
  set(tensor, 1);
  const EventRef event = stream().record();
  fake_cuda::fail_next("cudaEventQuery", cudaErrorIllegalAddress);
  EXPECT_THROW(stream().synchronize(event), Cancelled);
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

// A clock that moves by a millisecond when it is read: a block of one piece reads it when it begins and when
// it is done.
TEST_F(CudaOnHost, APacedCallSaysInSecondsHowLateItWas) {
  simt::clock_step_ns = 1'000'000;
  const auto backend =
      make_replay_backend({.world_size = 2, .deadline_s = kNever},
                          {.rank = 0, .times = [](CallKind, double, const std::vector<int>&) {
                             return CallTime{0.0004, 0};
                           }});
  {
    Device& own = backend->device(0);
    const auto on = own.make_stream("send to rank 1", StreamPriority::communication);
    const auto group = backend->communicator("pp", {0, 1}, 0);
    auto& paced = dynamic_cast<PacedCommunicator&>(*group);
    Tensor tensor = own.allocate(*on, MemoryKind::working, DType::f32, 1, 4);
    for (int i = 0; i < 600; ++i) group->send(*on, tensor, 1);  // the numbers are used again
    own.synchronize();
    const PacedUse use = paced.take_paced_use();
    EXPECT_EQ(use.calls, 600);
    EXPECT_EQ(fake_cuda::calls("cudaHostAlloc"), 2U);  // for the kernels' flags, and for these
    EXPECT_NEAR(use.late_s, 600 * 0.0006, 1e-9);
    EXPECT_NEAR(use.latest_s, 0.0006, 1e-12);
    EXPECT_EQ(use.link_bytes, static_cast<size_t>(2 * launch::kPacedPiece));  // of one block
    own.release(*on, tensor);
    own.synchronize();
  }
  simt::clock_step_ns = 100;
}

TEST_F(CudaOnHost, EventsAreUsedAgain) {
  start({.deadline_s = kNever});
  for (int i = 0; i < 1000; ++i) {
    stream().record();
    if (i % 100 == 99) device().synchronize();
  }
  EXPECT_LE(fake_cuda::calls("cudaEventCreateWithFlags"), 300U);
}

// A training step's shape, without its kernels: four ranks, tp 2 x pp 2, each driven by a thread. On every
// rank work on the compute stream, all-reduces on another, transfers down and up the pipeline on two more,
// receives posted early, memory taken on one stream and given back on another. Whatever the order in which
// the device's streams go on, what comes out is what plain sums say.
class Pipeline {
 public:
  Pipeline(Backend& backend, int rank) : device_(backend.device(rank)), tp_(rank % 2), pp_(rank / 2) {
    const auto stream = [&](const char* name, StreamPriority priority) {
      return device_.make_stream(name, priority);
    };
    compute_ = stream("compute", StreamPriority::compute);
    reduce_ = stream("tp", StreamPriority::communication);
    down_ = stream("down", StreamPriority::communication);
    up_ = stream("up", StreamPriority::communication);
    group_ = backend.communicator("tp" + std::to_string(pp_), {2 * pp_, 2 * pp_ + 1}, tp_);
    const std::string column = std::to_string(tp_);
    to_next_ = backend.communicator("down" + column, {tp_, 2 + tp_}, pp_);
    to_previous_ = backend.communicator("up" + column, {tp_, 2 + tp_}, pp_);
  }

  // Of each microbatch m: the first stage makes tp + 10·m + 1, all-reduces it over tp and sends it down; the
  // second adds 1 by another all-reduce with ones, and sends it back up.
  void run(int microbatches) {
    std::vector<Tensor> arrived(microbatches);
    std::vector<EventRef> when(microbatches);
    Communicator& incoming = pp_ == 0 ? *to_previous_ : *to_next_;
    Communicator& outgoing = pp_ == 0 ? *to_next_ : *to_previous_;
    Stream& in = pp_ == 0 ? *up_ : *down_;
    Stream& out = pp_ == 0 ? *down_ : *up_;
    const auto receive = [&](int m) {
      if (m >= microbatches) return;
      arrived[m] = device_.allocate(in, MemoryKind::communication, DType::f32, 1, kLength);
      incoming.receive(in, arrived[m], 1 - pp_);
      when[m] = in.record();
    };
    const auto send = [&](Tensor& tensor) {
      out.wait(reduce_->record());
      outgoing.send(out, tensor, 1 - pp_);
      device_.release(out, tensor);
    };
    const auto check = [&](int m) {
      compute_->wait(when[m]);
      std::vector<float> found(kLength);
      device_.download(*compute_, arrived[m], std::as_writable_bytes(std::span(found)));
      wrong_ += std::count_if(found.begin(), found.end(), [&](float value) { return value != result(m); });
      device_.release(*compute_, arrived[m]);
    };
    receive(0);
    receive(1);
    if (pp_ == 0) {
      for (int m = 0; m < microbatches; ++m) {
        Tensor made = value(static_cast<float>(tp_ + 10 * m + 1));
        all_reduce(made);
        send(made);
        if (m >= 2) check(m - 2);
        if (m >= 1) receive(m + 1);
      }
      for (int m = std::max(0, microbatches - 2); m < microbatches; ++m) check(m);
      device_.synchronize();
      return;
    }
    for (int m = 0; m < microbatches; ++m) {
      Tensor sum = value(0.5F);
      compute_->wait(when[m]);
      cuda_stream(*compute_).enqueue([from = arrived[m], sum](cudaStream_t at) {
        // Each of two ranks adds a half of what came and a half of one.
        fake_cuda::launch(at, [from = data<float>(from), to = data<float>(sum)] {
          for (int64_t i = 0; i < kLength; ++i) to[i] += from[i] / 2;
        });
      });
      device_.release(*compute_, arrived[m]);
      all_reduce(sum);
      send(sum);
      receive(m + 2);
    }
    device_.synchronize();
  }
  [[nodiscard]] int64_t wrong() const { return wrong_; }
  static float result(int m) { return static_cast<float>(1 + 2 + 20 * m + 1); }

 private:
  static constexpr int64_t kLength = 37;

  Tensor value(float value) {
    Tensor made = device_.allocate(*compute_, MemoryKind::working, DType::f32, 1, kLength);
    const std::vector<float> all(kLength, value);
    device_.upload(*compute_, made, std::as_bytes(std::span(all)));
    return made;
  }
  void all_reduce(const Tensor& tensor) {
    reduce_->wait(compute_->record());
    group_->all_reduce(*reduce_, Reduce::sum, tensor);
  }

  Device& device_;
  const int tp_, pp_;
  std::unique_ptr<Stream> compute_, reduce_, down_, up_;
  std::unique_ptr<Communicator> group_, to_next_, to_previous_;
  int64_t wrong_ = 0;
};

TEST_F(CudaOnHost, AnyOrderOfStreamsGivesTheSame) {
  for (uint32_t seed = 1; seed <= 40; seed += kStride) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    fake_cuda::reset(seed);
    const auto backend = cuda::make_backend({.world_size = 4, .deadline_s = kNever, .poison = true});
    std::vector<std::thread> hosts;
    std::vector<int64_t> wrong(4, -1);
    for (int rank = 0; rank < 4; ++rank)
      hosts.emplace_back([&, rank] {
        try {
          Pipeline pipeline(*backend, rank);
          pipeline.run(8);
          wrong[rank] = pipeline.wrong();
        } catch (const std::exception& error) {
          backend->guard().fail(error.what());
        }
      });
    for (std::thread& host : hosts) host.join();
    ASSERT_EQ(backend->guard().failure(), "");
    EXPECT_THAT(wrong, Each(0));
    for (int rank = 0; rank < 4; ++rank) EXPECT_EQ(backend->device(rank).memory().held(), 0U);
  }
}

}  // namespace
}  // namespace stp::cuda
