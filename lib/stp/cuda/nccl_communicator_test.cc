// Communicators over NCCL as the runtime uses them: ranks are threads of this process, each with an order of
// issue of its own as a process has; NCCL, streams and memory are stand-ins.
#include "stp/cuda/nccl_communicator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <optional>
#include <set>
#include <thread>

#include "stp/cuda/cuda_memory.h"
#include "stp/cuda/issue_order.h"
#include "support/nccl_world.h"

namespace stp::cuda {
namespace {

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing_support::FakeNccl;
using testing_support::outcomes;
using testing_support::wait_for_failure;
using World = testing_support::NcclWorld;

struct FakeEvent : Event, IssuePoint {
  [[nodiscard]] double seconds() const override { return 0; }
};

// A CudaStream without CUDA: the host's queue alone.
class FakeStream : public Stream {
 public:
  FakeStream(RunContext& run, IssueOrder& order, int rank, const std::string& name, int number)
      : run_(run), queue_(order.make_queue(rank, name)), handle_(testing_support::stream(number)) {}

  EventRef record() override {
    auto event = std::make_shared<FakeEvent>();
    queue_->record(op_, event, [] {});
    return event;
  }
  void wait(const EventRef& event) override {
    queue_->wait(op_, std::dynamic_pointer_cast<FakeEvent>(event), [] {});
  }
  void begin(uint32_t op) override { op_ = op; }

  static void enqueue(Stream& stream, NcclCall call) {
    auto& self = dynamic_cast<FakeStream&>(stream);
    self.queue_->push(self.op_, [&self, op = self.op_, call = std::move(call)] {
      call(self.handle_, self.run_.where(self.queue_->rank(), self.queue_->name(), op));
    });
  }

 private:
  RunContext& run_;
  std::unique_ptr<IssueQueue> queue_;
  const cudaStream_t handle_;
  std::optional<uint32_t> op_;
};

Tensor tensor(int64_t rows, int64_t columns, DType type, intptr_t at = 4096) {
  auto memory = std::make_shared<CudaMemory>();
  memory->held = true;
  memory->slot = std::make_shared<MemorySlot>();
  memory->slot->at = reinterpret_cast<void*>(at);
  return {memory, rows, columns, type};
}

// What one rank has.
struct Rank {
  Rank(int number, NcclSession& its_session, RunContext& its_run, int hosts = 1)
      : rank(number), session(its_session), run(its_run), order(run, hosts) {
    run.describe_with([](int, uint32_t op) { return "F0." + std::to_string(op); });
  }
  std::unique_ptr<FakeStream> stream(const std::string& name, int number) {
    return std::make_unique<FakeStream>(run, order, rank, name, number);
  }
  std::unique_ptr<Communicator> group(const std::string& name, const std::vector<int>& members,
                                      GroupUse use = GroupUse::any) {
    const auto self = std::find(members.begin(), members.end(), rank) - members.begin();
    return make_nccl_communicator(session, name, members, static_cast<int>(self), use, FakeStream::enqueue);
  }
  int rank;
  NcclSession& session;
  RunContext& run;
  IssueOrder order;
};

std::vector<std::string> on_ranks(World& world, int ranks, const std::function<void(Rank&)>& program) {
  return outcomes(world, ranks, [&](int number, NcclSession& session, RunContext& run) {
    Rank rank(number, session, run);
    program(rank);
  });
}

// Calls of the rank but those that found and end communicators, and that connect links on the default stream.
std::vector<FakeNccl::Call> calls_of(World& world, int rank) {
  std::vector<FakeNccl::Call> calls;
  for (const auto& call : world.nccl.calls(rank))
    if (call.stream != nullptr) calls.push_back(call);
  return calls;
}

TEST(NcclCommunicator, CallsNcclWithCountsTypesAndStreamsAndCountsBytes) {
  World world;
  const auto found = on_ranks(world, 3, [](Rank& rank) {
    const auto tp = rank.stream("tp", 7);
    const auto group = rank.group("tp", {0, 1, 2});
    EXPECT_EQ(group->size(), 3);
    EXPECT_EQ(group->index(), rank.rank);
    group->all_reduce(*tp, Reduce::sum, tensor(5, 3, DType::bf16, 0x1000));
    group->all_reduce(*tp, Reduce::maximum, tensor(5, 1, DType::f32));
    group->all_gather(*tp, tensor(2, 4, DType::f64, 0x2000), tensor(6, 4, DType::f64, 0x3000));
    group->reduce_scatter(*tp, tensor(9, 2, DType::f32, 0x4000), tensor(3, 2, DType::f32, 0x5000));
    const Traffic traffic = group->traffic();
    EXPECT_EQ(traffic.all_reduce_bytes, 5 * 3 * 2 + 5 * 4);
    EXPECT_EQ(traffic.all_gather_bytes, 2 * 4 * 8);
    EXPECT_EQ(traffic.reduce_scatter_bytes, 9 * 2 * 4);
    EXPECT_EQ(traffic.sent_bytes, 0);
    EXPECT_EQ(traffic.calls, 4);
  });
  EXPECT_THAT(found, Each(""));
  EXPECT_THAT(world.nccl.problems(), IsEmpty());
  const auto calls = calls_of(world, 1);
  ASSERT_EQ(calls.size(), 4U);
  const auto is = [](const FakeNccl::Call& call, const char* name, size_t count, int type, intptr_t in,
                     intptr_t out) {
    EXPECT_EQ(call.name, name);
    EXPECT_EQ(call.count, count) << name;
    EXPECT_EQ(call.type, type) << name;
    EXPECT_EQ(call.in, reinterpret_cast<void*>(in)) << name;
    EXPECT_EQ(call.out, reinterpret_cast<void*>(out)) << name;
    EXPECT_EQ(call.stream, testing_support::stream(7)) << name;
  };
  is(calls[0], "ncclAllReduce", 15, ncclBfloat16, 0x1000, 0x1000);
  EXPECT_EQ(calls[0].op, ncclSum);
  EXPECT_EQ(calls[1].op, ncclMax);
  is(calls[2], "ncclAllGather", 8, ncclFloat64, 0x2000, 0x3000);      // of each member
  is(calls[3], "ncclReduceScatter", 6, ncclFloat32, 0x4000, 0x5000);  // for each member
}

// Two stages, links both ways: each direction has a communicator of its own, on a stream of its own.
TEST(NcclCommunicator, LinksHaveACommunicatorPerDirection) {
  World world;
  const auto found = on_ranks(world, 2, [](Rank& rank) {
    const auto down = rank.group("p2p", {0, 1}), up = rank.group("p2p", {1, 0});
    const auto down_stream = rank.stream("down", 1), up_stream = rank.stream("up", 2);
    const Tensor forward = tensor(4, 4, DType::bf16), backward = tensor(4, 2, DType::bf16);
    for (int i = 0; i < 3; ++i) {
      if (rank.rank == 0) {
        down->send(*down_stream, forward, 1);
        up->receive(*up_stream, backward, 0);
      } else {
        up->send(*up_stream, backward, 1);
        down->receive(*down_stream, forward, 0);
      }
    }
    EXPECT_EQ(down->traffic().sent_bytes, rank.rank == 0 ? 96 : 0);
    EXPECT_EQ(up->traffic().sent_bytes, rank.rank == 1 ? 48 : 0);
  });
  EXPECT_THAT(found, Each(""));
  EXPECT_THAT(world.nccl.problems(), IsEmpty());
  EXPECT_EQ(world.nccl.count("ncclGetUniqueId"), 2);
  std::map<std::pair<std::string, cudaStream_t>, std::set<int>> groups;
  for (const auto& call : calls_of(world, 0)) groups[{call.name, call.stream}].insert(call.group);
  ASSERT_EQ(groups.size(), 2U);
  EXPECT_NE(groups.begin()->second, groups.rbegin()->second);
  // Before any of them both links were connected.
  std::vector<std::string> order;
  for (const auto& call : world.nccl.calls(0))
    if (call.peer >= 0) order.push_back(call.name + (call.stream == nullptr ? " first" : ""));
  EXPECT_THAT(order, ElementsAre("ncclSend first", "ncclRecv first", "ncclSend", "ncclRecv", "ncclSend",
                                 "ncclRecv", "ncclSend", "ncclRecv"));
}

// A call is made when its stream's turn comes: not when it is given, and behind what the stream waits for. As
// if there were another host in the process, which could record what this one waits for.
TEST(NcclCommunicator, CallsAreMadeInTheOrderOfIssue) {
  World world;
  const auto found = on_ranks(world, 2, [&](Rank& alone) {
    Rank rank(alone.rank, alone.session, alone.run, /*hosts=*/2);
    const auto tp = rank.group("tp", {0, 1}), dp = rank.group("dp", {0, 1});
    const auto tp_stream = rank.stream("tp", 1), dp_stream = rank.stream("dp", 2);
    // Nothing of the stream `tp` is issued until the event, which is recorded last, is.
    auto event = std::make_shared<FakeEvent>();
    const auto queue = rank.order.make_queue(rank.rank, "other");
    tp_stream->wait(event);
    tp->all_reduce(*tp_stream, Reduce::sum, tensor(1, 11, DType::f32));
    tp->all_reduce(*tp_stream, Reduce::sum, tensor(1, 12, DType::f32));
    dp->all_reduce(*dp_stream, Reduce::sum, tensor(1, 21, DType::f32));
    EXPECT_EQ(tp->traffic().calls, 0);
    EXPECT_EQ(dp->traffic().calls, 1);
    queue->record(std::nullopt, event, [] {});
    EXPECT_EQ(tp->traffic().calls, 2);
  });
  EXPECT_THAT(found, Each(""));
  EXPECT_THAT(world.nccl.problems(), IsEmpty());
  for (const int rank : {0, 1}) {
    std::vector<size_t> counts;
    for (const auto& call : calls_of(world, rank)) counts.push_back(call.count);
    EXPECT_THAT(counts, ElementsAre(21, 11, 12));
  }
}

// A grid of 2 × 2 that trains a few microbatches, receives posted before sends.
void train(Rank& rank, int microbatches) {
  const int stage = rank.rank / 2, first = stage * 2, peer = rank.rank + (stage == 0 ? 2 : -2);
  const auto tp = rank.group("tp", {first, first + 1}), model = rank.group("model", {0, 1, 2, 3});
  const std::vector<int> down = {std::min(rank.rank, peer), std::max(rank.rank, peer)},
                         up = {down[1], down[0]};
  const auto forward = rank.group("p2p", down), backward = rank.group("p2p", up);
  const auto tp_stream = rank.stream("tp", 1), forward_stream = rank.stream("down", 2),
             backward_stream = rank.stream("up", 3), compute = rank.stream("compute", 4);
  for (int i = 0; i < microbatches; ++i) {
    for (const auto& stream : {&tp_stream, &forward_stream, &backward_stream}) (*stream)->begin(i);
    const Tensor x = tensor(2, 8 + i, DType::bf16);
    if (stage == 1) forward->receive(*forward_stream, x, 0);
    if (stage == 1) tp_stream->wait(forward_stream->record());
    tp->all_reduce(*tp_stream, Reduce::sum, x);
    forward_stream->wait(tp_stream->record());
    if (stage == 0) forward->send(*forward_stream, x, 1);
    if (stage == 1) backward_stream->wait(tp_stream->record());
    if (stage == 1) backward->send(*backward_stream, x, 1);
    if (stage == 0) backward->receive(*backward_stream, x, 0);
    tp_stream->wait(backward_stream->record());
  }
  model->all_reduce(*compute, Reduce::sum, tensor(1, 1, DType::f64));
}

TEST(NcclCommunicator, AGridCallsInOneOrderOnAllRanks) {
  World world;
  EXPECT_THAT(on_ranks(world, 4, [](Rank& rank) { train(rank, 5); }), Each(""));
  EXPECT_THAT(world.nccl.problems(), IsEmpty());
  EXPECT_EQ(world.nccl.count("ncclAllReduce"), 4 * 5 + 4);
  EXPECT_EQ(world.nccl.count("ncclCommAbort"), 0);
}

TEST(NcclCommunicator, AFailedCallAbortsAllRanksAndNamesRankStreamOpAndCall) {
  World world;
  world.nccl.trouble = [](const FakeNccl::Call& call) {
    const bool third = call.rank == 2 && call.name == "ncclRecv" && call.count == 2 * (8 + 2);
    return FakeNccl::Trouble{.result = third ? ncclSystemError : ncclSuccess};
  };
  const auto found = on_ranks(world, 4, [](Rank& rank) {
    train(rank, 4);
    wait_for_failure(rank.run.guard);
  });
  EXPECT_THAT(found, Each(AllOf(HasSubstr("rank 2, down, F0.2: ncclRecv: system error: the last words"),
                                HasSubstr("20 bf16 from rank 0 in group p2p of ranks 0, 2"))));
  EXPECT_EQ(world.nccl.count("ncclCommAbort"), world.nccl.count("ncclCommInitRankConfig"));
  EXPECT_EQ(world.nccl.count("ncclCommDestroy"), 0);
}

// A rank whose host fails at something else, in the middle of the step.
TEST(NcclCommunicator, ARankThatDiesAbortsTheOthersWithItsOwnWords) {
  World world;
  const auto found = on_ranks(world, 4, [](Rank& rank) {
    train(rank, 2);
    if (rank.rank == 3) throw std::runtime_error("the disk is full");
    wait_for_failure(rank.run.guard);
  });
  EXPECT_THAT(found, Each(HasSubstr("rank 3, tp, F0.1: the disk is full")));
  EXPECT_EQ(world.nccl.count("ncclCommAbort"), world.nccl.count("ncclCommInitRankConfig"));
}

// Nothing is issued any more, nor counted, once the run has failed.
TEST(NcclCommunicator, AfterAFailureNothingIsCalled) {
  World world;
  std::atomic<int> called{0};
  on_ranks(world, 2, [&called](Rank& rank) {
    const auto tp = rank.group("tp", {0, 1});
    const auto stream = rank.stream("tp", 1);
    tp->all_reduce(*stream, Reduce::sum, tensor(1, 4, DType::f32));
    ++called;
    while (called < 2) std::this_thread::yield();
    if (rank.rank == 0) rank.run.guard.fail("enough");
    wait_for_failure(rank.run.guard);
    tp->all_reduce(*stream, Reduce::sum, tensor(1, 4, DType::f32));
    EXPECT_EQ(tp->traffic().calls, 1);
  });
  EXPECT_EQ(world.nccl.count("ncclAllReduce"), 2);
}

// A transfer that never ends on the device: the deadline names it, on the rank where it is.
TEST(NcclCommunicator, ATransferThatHangsIsNamedByTheDeadline) {
  World world;
  world.deadline_s = 0.4;
  world.nccl.trouble = [](const FakeNccl::Call& call) {
    return FakeNccl::Trouble{.never_ends =
                                 call.rank == 1 && call.name == "ncclSend" && call.stream != nullptr};
  };
  const auto found = on_ranks(world, 4, [](Rank& rank) {
    train(rank, 1);
    wait_for_failure(rank.run.guard);
  });
  EXPECT_THAT(found, Each(AllOf(HasSubstr("rank 1, down, F0.0: ncclSend of 16 bf16 to rank 3"),
                                HasSubstr("nothing moved for 0.4 s"))));
}

TEST(NcclCommunicator, OfAGroupOfOneNcclKnowsNothing) {
  World world;
  const auto found = on_ranks(world, 2, [](Rank& rank) {
    const auto alone = rank.group("tp", {rank.rank});
    const auto stream = rank.stream("tp", 1);
    EXPECT_EQ(alone->size(), 1);
    EXPECT_EQ(alone->index(), 0);
    const Tensor in = tensor(2, 3, DType::f64, 0x1000), out = tensor(2, 3, DType::f64, 0x2000);
    alone->all_reduce(*stream, Reduce::sum, in);
    EXPECT_EQ(alone->traffic().calls, 0);
    alone->all_gather(*stream, in, out);
    alone->reduce_scatter(*stream, in, out);
    EXPECT_EQ(alone->traffic().all_gather_bytes, 48);
    EXPECT_EQ(alone->traffic().reduce_scatter_bytes, 48);
    EXPECT_THROW(alone->send(*stream, in, 0), std::logic_error);
    EXPECT_THROW(alone->receive(*stream, in, 0), std::logic_error);
  });
  EXPECT_THAT(found, Each(""));
  const auto calls = world.nccl.calls(1);
  ASSERT_EQ(calls.size(), 2U);
  for (const auto& call : calls) {
    EXPECT_EQ(call.name, "copy");
    EXPECT_EQ(call.count, 48U);
    EXPECT_EQ(call.in, reinterpret_cast<void*>(0x1000));
    EXPECT_EQ(call.out, reinterpret_cast<void*>(0x2000));
  }
}

TEST(NcclCommunicator, WhatDoesNotFitIsRefusedAtTheCall) {
  World world;
  const auto found = on_ranks(world, 2, [](Rank& rank) {
    const auto tp = rank.group("tp", {0, 1});
    const auto stream = rank.stream("tp", 1);
    const Tensor one = tensor(1, 4, DType::f32), two = tensor(2, 4, DType::f32),
                 wide = tensor(2, 4, DType::f64);
    EXPECT_THROW(tp->all_gather(*stream, two, one), std::logic_error);
    EXPECT_THROW(tp->all_gather(*stream, one, wide), std::logic_error);
    EXPECT_THROW(tp->reduce_scatter(*stream, one, two), std::logic_error);
    EXPECT_THROW(tp->send(*stream, one, rank.rank), std::logic_error);
    EXPECT_THROW(tp->send(*stream, one, 2), std::logic_error);
    EXPECT_THROW(tp->receive(*stream, one, -1), std::logic_error);
    EXPECT_THROW(make_nccl_communicator(rank.session, "tp", {0, 1}, 2, GroupUse::any, FakeStream::enqueue),
                 std::logic_error);
  });
  EXPECT_THAT(found, Each(""));
  EXPECT_EQ(calls_of(world, 0).size(), 0U);
}

// A group of two is connected for transfers, and has a window for sums, only where it is for these.
TEST(NcclCommunicator, SetsUpWhatAGroupIsFor) {
  struct Case {
    GroupUse use;
    int connections, windows;
  };
  for (const Case& each :
       {Case{GroupUse::any, 1, 2}, Case{GroupUse::collectives, 0, 2}, Case{GroupUse::transfers, 1, 0}}) {
    World world;
    world.options.standard.window_bytes = 64;
    const auto found = on_ranks(world, 2, [&](Rank& rank) {
      const auto group = rank.group("pair", {0, 1}, each.use);
      const auto stream = rank.stream("tp", 1);
      const Tensor one = tensor(1, 4, DType::f32), two = tensor(2, 4, DType::f32);
      if (each.use == GroupUse::collectives) {
        EXPECT_THROW(group->send(*stream, one, 1 - rank.rank), std::logic_error);
        EXPECT_THROW(group->receive(*stream, one, 1 - rank.rank), std::logic_error);
      }
      if (each.use == GroupUse::transfers) {
        EXPECT_THROW(group->all_reduce(*stream, Reduce::sum, one), std::logic_error);
        EXPECT_THROW(group->all_gather(*stream, one, two), std::logic_error);
        EXPECT_THROW(group->reduce_scatter(*stream, two, one), std::logic_error);
      }
    });
    EXPECT_THAT(found, Each(""));
    EXPECT_THAT(world.nccl.problems(), IsEmpty());
    EXPECT_EQ(world.nccl.count("ncclSend"), each.connections);
    EXPECT_EQ(world.nccl.count("ncclRecv"), each.connections);
    EXPECT_EQ(world.nccl.count("ncclCommWindowRegister"), each.windows);
  }
}

}  // namespace
}  // namespace stp::cuda
