// NCCL itself on one GPU: groups of one, as the session founds, watches and ends them. On a GPU; and on the
// fake runtime with the NCCL of fake_nccl.h, where a group of one does what NCCL's does: a copy, if in and
// out differ.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <numeric>
#include <optional>
#include <thread>
#include <vector>

#include "stp/base/error.h"
#include "stp/cuda/cuda_backend.h"
#include "stp/cuda/cuda_check.h"
#include "stp/cuda/cuda_device.h"
#include "stp/cuda/cuda_memory.h"
#include "stp/cuda/cuda_stream.h"
#include "stp/cuda/nccl_communicator.h"
#ifdef STP_KERNELS_ON_HOST
#include "support/fake_cuda.h"
#include "support/fake_nccl.h"
#endif

namespace stp::cuda {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

#ifdef STP_KERNELS_ON_HOST
class Library {
 public:
  Library() {
    fake_cuda::reset(3);
    nccl_.carry_out = [](const testing_support::FakeNccl::Call& call, int, int) {
      if (call.in == call.out) return;
      fake_cuda::launch(call.stream,
                        [call] { std::memcpy(const_cast<void*>(call.out), call.in, 4 * call.count); });
    };
  }
  ~Library() { EXPECT_THAT(nccl_.problems(), testing::IsEmpty()); }
  NcclApi api() { return nccl_.api(0); }

 private:
  testing_support::FakeNccl nccl_;
};

// The stream stays where it is until `go`.
void hold(cudaStream_t stream, std::atomic<bool>& go) {
  fake_cuda::launch_when(
      stream, [&go] { return go.load(); }, [] {});
}
#else
class Library {
 public:
  NcclApi api() { return loaded_nccl(); }
};

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
constexpr size_t kBytes = kCount * sizeof(float);

// One rank of a world of one, with its device and its session.
class One {
 public:
  explicit One(
      double deadline_s, const std::function<NcclApi(NcclApi)>& changed = [](NcclApi api) { return api; })
      : run(deadline_s, 1, 0), device(run, 0, {.deadline_s = deadline_s, .poison = true}) {
    Listener listener("127.0.0.1", 0);
    const uint16_t port = listener.port();
    rendezvous.emplace(ProcessPlace{.rank = 0, .world_size = 1, .port = port}, run.guard, RendezvousOptions{},
                       std::move(listener));
    NcclApi api = library.api();
    api.comm_abort = [this, inner = api.comm_abort](ncclComm_t comm) {
      ++aborts;
      return inner(comm);
    };
    api.comm_get_async_error = [this, inner = api.comm_get_async_error](ncclComm_t comm,
                                                                        ncclResult_t* state) {
      ++asked;
      return inner(comm, state);
    };
    session.emplace(changed(api), cuda_runtime_for_nccl(run), *rendezvous, run.guard, NcclOptions{});
    run.describe_with([](int, uint32_t op) { return "F0." + std::to_string(op); });
    stream = device.make_stream("tp", StreamPriority::communication);
  }
  One(const One&) = delete;
  One& operator=(const One&) = delete;
  // As the backend: the session ends while the GPU has nothing to do.
  ~One() {
    session.reset();
    try {
      rendezvous->end();
    } catch (const Cancelled&) {
    }
  }

  Tensor tensor() { return device.allocate(*stream, MemoryKind::communication, DType::f32, 1, kCount); }
  Tensor tensor(const std::vector<float>& values) {
    Tensor made = tensor();
    device.upload(*stream, made, std::as_bytes(std::span(values)));
    return made;
  }
  std::vector<float> values(const Tensor& tensor) {
    std::vector<float> found(kCount);
    device.download(*stream, tensor, std::as_writable_bytes(std::span(found)));
    return found;
  }
  void all_reduce(const std::shared_ptr<NcclComm>& comm, const Tensor& tensor) {
    enqueue_on_cuda_stream(*stream, [comm, tensor](cudaStream_t on, const std::string& where) {
      comm->all_reduce(where, Reduce::sum, DType::f32, data<float>(tensor), kCount, on);
    });
  }
  void all_gather(const std::shared_ptr<NcclComm>& comm, const Tensor& in, const Tensor& out) {
    enqueue_on_cuda_stream(*stream, [comm, in, out](cudaStream_t on, const std::string& where) {
      comm->all_gather(where, DType::f32, data<float>(in), data<float>(out), kCount, on);
    });
  }

  // Until the session's own thread has looked at all communicators, or the run has failed.
  void wait_for_a_look() {
    const int before = asked;
    while (asked < before + 2 && !run.guard.failed())
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }

  Library library;
  std::atomic<int> aborts = 0, asked = 0;
  CudaRun run;
  CudaDevice device;
  std::optional<Rendezvous> rendezvous;
  std::optional<NcclSession> session;
  std::unique_ptr<Stream> stream;
};

class GpuNccl : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string lack = lack_of_gpu(); !lack.empty()) GTEST_SKIP() << lack;
    try {
      Library().api();
    } catch (const InputError& error) {
      GTEST_SKIP() << error.what();
    }
  }
};

std::vector<float> ramp(float from) {
  std::vector<float> values(kCount);
  std::iota(values.begin(), values.end(), from);
  return values;
}

TEST_F(GpuNccl, AGroupOfOneIsFoundedUsedAndEnded) {
  One one(60);
  const auto tp = one.session->found("tp", {0}, 0), dp = one.session->found("dp", {0}, 0);
  EXPECT_EQ(tp->size(), 1);
  Tensor in = one.tensor(ramp(3)), gathered = one.tensor(), scattered = one.tensor();
  one.all_reduce(tp, in);
  EXPECT_EQ(one.values(in), ramp(3));
  one.all_gather(dp, in, gathered);
  EXPECT_EQ(one.values(gathered), ramp(3));
  enqueue_on_cuda_stream(*one.stream, [tp, in, scattered](cudaStream_t on, const std::string& where) {
    tp->reduce_scatter(where, DType::f32, data<float>(in), data<float>(scattered), kCount, on);
  });
  EXPECT_EQ(one.values(scattered), ramp(3));
  for (Tensor* each : {&in, &gathered, &scattered}) one.device.release(*one.stream, *each);
  one.device.synchronize();
  one.session.reset();
  EXPECT_EQ(one.run.guard.failure(), "");
  EXPECT_EQ(one.aborts, 0);
}

TEST_F(GpuNccl, IsCapturedIntoAGraphThatIsLaunchedAgainAndAgain) {
  One one(60);
  const auto comm = one.session->found("tp", {0}, 0);
  Tensor in = one.tensor(ramp(0)), out = one.tensor();
  one.device.synchronize();

  const cudaStream_t stream = cuda_stream(*one.stream).handle();
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t launched = nullptr;
  STP_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  comm->all_reduce("rank 0, tp, F0.1", Reduce::sum, DType::f32, data<float>(in), kCount, stream);
  comm->all_gather("rank 0, tp, F0.1", DType::f32, data<float>(in), data<float>(out), kCount, stream);
  STP_CUDA(cudaStreamEndCapture(stream, &graph));
  STP_CUDA(cudaGraphInstantiate(&launched, graph, 0));
  one.wait_for_a_look();
  const std::vector<float> before = one.values(out);
  EXPECT_NE(before.back(), ramp(0).back()) << "nothing is done while it is captured";

  for (int i = 1; i <= 3; ++i) {
    const std::vector<float> sent = ramp(static_cast<float>(1000 * i));
    one.device.upload(*one.stream, in, std::as_bytes(std::span(sent)));
    cuda_stream(*one.stream).enqueue([launched](cudaStream_t on) {
      STP_CUDA(cudaGraphLaunch(launched, on));
    });
    EXPECT_EQ(one.values(out), sent) << i;
  }
  // Calls that are not captured go on as before.
  one.all_gather(comm, out, in);
  EXPECT_EQ(one.values(in), ramp(3000));
  STP_CUDA(cudaGraphExecDestroy(launched));
  STP_CUDA(cudaGraphDestroy(graph));
  for (Tensor* each : {&in, &out}) one.device.release(*one.stream, *each);
  one.device.synchronize();
  one.session.reset();
  EXPECT_EQ(one.run.guard.failure(), "");
}

TEST_F(GpuNccl, WhatTheDeviceDoesNotEndIsNamedAtTheDeadlineAndAllIsAborted) {
  static std::atomic<bool> go;  // the device may look at it when the test is over
  go = false;
  One one(0.3);
  const auto tp = one.session->found("tp", {0}, 0), dp = one.session->found("dp", {0}, 0);
  Tensor in = one.tensor(ramp(0)), out = one.tensor();
  one.device.synchronize();
  cuda_stream(*one.stream).begin(4);
  cuda_stream(*one.stream).enqueue([](cudaStream_t on) { hold(on, go); });
  one.all_gather(tp, in, out);
  while (!one.run.guard.failed())
    std::this_thread::sleep_for(std::chrono::milliseconds(1));  // by the session alone
  go = true;                                                    // an abort may wait for the device
  EXPECT_THAT(one.run.guard.failure(),
              AllOf(HasSubstr("rank 0, tp, F0.4: ncclAllGather of 10007 f32 in group tp"),
                    testing::ContainsRegex("nccl_session.cc:[0-9]+"), HasSubstr("has not ended"),
                    HasSubstr("nothing moved")));
  EXPECT_THROW(dp->all_reduce("rank 0, tp, F0.5", Reduce::sum, DType::f32, nullptr, 1, nullptr), Cancelled);
  one.session.reset();
  EXPECT_EQ(one.aborts, 2);
}

TEST_F(GpuNccl, ACallThatNcclRefusesNamesCallRankOpAndPlaceAndAllIsAborted) {
  One one(60, [](NcclApi api) {
    api.all_reduce = [inner = api.all_reduce](const void* in, void* out, size_t count, ncclDataType_t,
                                              ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
      const ncclResult_t result =
          inner(in, out, count, ncclNumTypes, op, comm, stream);  // there is no such type
      return result == ncclSuccess ? ncclInvalidArgument : result;
    };
    return api;
  });
  const auto tp = one.session->found("tp", {0}, 0), dp = one.session->found("dp", {0}, 0);
  Tensor in = one.tensor(ramp(0)), out = one.tensor();
  one.device.synchronize();
  cuda_stream(*one.stream).begin(4);
  one.all_reduce(tp, in);
  one.all_gather(dp, in, out);  // is not called any more
  EXPECT_THROW(one.device.synchronize(), Cancelled);
  EXPECT_THAT(one.run.guard.failure(),
              AllOf(HasSubstr("rank 0, tp, F0.4: ncclAllReduce: "), HasSubstr("10007 f32 in group tp"),
                    testing::ContainsRegex("nccl_session.cc:[0-9]+")));
  one.session.reset();
  EXPECT_EQ(one.aborts, 2);
}

}  // namespace
}  // namespace stp::cuda
