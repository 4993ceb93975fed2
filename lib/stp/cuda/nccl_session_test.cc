// NCCL as it is called: ranks are threads of this process, NCCL and the device's streams are stand-ins.
#include "stp/cuda/nccl_session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <thread>

#include "stp/base/error.h"
#include "support/nccl_world.h"
#include "support/refusal.h"

namespace stp::cuda {
namespace {

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using testing_support::FakeNccl;
using testing_support::outcomes;
using testing_support::place;
using testing_support::stream;
using testing_support::wait_for_failure;
using World = testing_support::NcclWorld;

// Two tensor-parallel pairs, and links both ways between them.
void run_grid(int rank, NcclSession& session, int calls) {
  const int first = rank / 2 * 2;
  const auto tp = session.found("tp", {first, first + 1}, rank % 2);
  const int down = rank % 2, up = rank % 2 + 2;
  const auto forward = session.found("p2p", {down, up}, rank / 2);
  const auto backward = session.found("p2p", {up, down}, 1 - rank / 2);
  for (int i = 0; i < calls; ++i) {
    const size_t count = 8 + i;
    if (rank >= 2) forward->receive(place(rank), DType::bf16, nullptr, count, 0, stream(2));
    tp->all_reduce(place(rank), Reduce::sum, DType::bf16, nullptr, count, stream(1));
    tp->all_reduce(place(rank), Reduce::maximum, DType::f32, nullptr, count, stream(1));
    tp->all_gather(place(rank), DType::f64, nullptr, nullptr, count, stream(1));
    tp->reduce_scatter(place(rank), DType::i32, nullptr, nullptr, count, stream(1));
    if (rank < 2) forward->send(place(rank), DType::bf16, nullptr, count, 1, stream(2));
    if (rank >= 2) backward->send(place(rank), DType::f32, nullptr, count, 1, stream(3));
    if (rank < 2) backward->receive(place(rank), DType::f32, nullptr, count, 0, stream(3));
  }
}

TEST(NcclSession, FoundsGroupsCallsAndEndsThem) {
  World world;
  const auto found =
      outcomes(world, 4, [](int rank, NcclSession& session, RunContext&) { run_grid(rank, session, 3); });
  EXPECT_THAT(found, Each(""));
  EXPECT_THAT(world.nccl.problems(), IsEmpty());
  EXPECT_EQ(world.nccl.count("ncclGetUniqueId"), 6);
  EXPECT_EQ(world.nccl.count("ncclCommInitRankConfig"), 12);
  EXPECT_EQ(world.nccl.count("ncclCommFinalize"), 12);
  EXPECT_EQ(world.nccl.count("ncclCommDestroy"), 12);
  EXPECT_EQ(world.nccl.count("ncclCommAbort"), 0);
  const auto calls = world.nccl.calls(0);
  const auto reduce =
      std::find_if(calls.begin(), calls.end(), [](const auto& each) { return each.name == "ncclAllReduce"; });
  ASSERT_NE(reduce, calls.end());
  EXPECT_EQ(reduce[0].count, 8U);
  EXPECT_EQ(reduce[0].type, ncclBfloat16);
  EXPECT_EQ(reduce[0].op, ncclSum);
  EXPECT_EQ(reduce[0].stream, stream(1));
  EXPECT_EQ(reduce[1].type, ncclFloat32);
  EXPECT_EQ(reduce[1].op, ncclMax);
  EXPECT_EQ(reduce[2].type, ncclFloat64);
  EXPECT_EQ(reduce[3].type, ncclInt32);
  EXPECT_EQ(reduce[3].op, ncclSum);
}

TEST(NcclSession, TellsNcclHowToUseTheDevice) {
  World world;
  world.options.standard.max_ctas = 12;
  world.options.groups["p2p"] = {
      .min_ctas = 1, .max_ctas = 2, .cga_cluster_size = 4, .policy = CtaPolicy::efficiency};
  EXPECT_THAT(
      outcomes(world, 4, [](int rank, NcclSession& session, RunContext&) { run_grid(rank, session, 1); }),
      Each(""));
  const auto configs = world.nccl.configs(3);
  ASSERT_THAT(configs, SizeIs(3));
  EXPECT_EQ(configs[0].maxCTAs, 12);
  EXPECT_EQ(configs[0].minCTAs, NCCL_CONFIG_UNDEF_INT);
  EXPECT_EQ(configs[0].cgaClusterSize, NCCL_CONFIG_UNDEF_INT);
  EXPECT_EQ(configs[0].CTAPolicy, NCCL_CONFIG_UNDEF_INT);
  EXPECT_EQ(configs[1].maxCTAs, 2);
  EXPECT_EQ(configs[1].minCTAs, 1);
  EXPECT_EQ(configs[1].cgaClusterSize, 4);
  EXPECT_EQ(configs[1].CTAPolicy, NCCL_CTA_POLICY_EFFICIENCY);
}

TEST(NcclSession, WaitsUntilNcclIsDoneWithACall) {
  World world;
  world.nccl.trouble = [](const FakeNccl::Call& call) {
    return FakeNccl::Trouble{.in_progress = call.count % 2 == 0 ? 3 : 300};
  };
  world.nccl.init_trouble = [](int rank) { return FakeNccl::Trouble{.in_progress = 50 * rank}; };
  EXPECT_THAT(
      outcomes(world, 4, [](int rank, NcclSession& session, RunContext&) { run_grid(rank, session, 3); }),
      Each(""));
  EXPECT_THAT(world.nccl.problems(), IsEmpty());
}

// Links both ways among three ranks: whatever the order of the first transfers, none of them waits.
TEST(NcclSession, ConnectsLinksFromTheFirstToTheSecond) {
  World world;
  const auto found = outcomes(world, 3, [](int rank, NcclSession& session, RunContext&) {
    for (const std::vector<int>& members : std::vector<std::vector<int>>{{0, 1}, {1, 0}, {1, 2}, {2, 0}})
      for (int index = 0; index < 2; ++index)
        if (members[index] == rank) session.connect(*session.found("p2p", members, index));
  });
  EXPECT_THAT(found, Each(""));
  EXPECT_THAT(world.nccl.problems(), IsEmpty());
  EXPECT_EQ(world.nccl.count("ncclSend"), 4);
  EXPECT_EQ(world.nccl.count("ncclRecv"), 4);
  for (const auto& call : world.nccl.calls(1))
    if (call.peer >= 0) {
      EXPECT_EQ(call.peer, call.name == "ncclSend" ? 1 : 0);
    }
}

TEST(NcclSession, ALinkThatIsNeverConnectedIsNamedByTheDeadline) {
  World world;
  world.deadline_s = 0.4;
  world.nccl.trouble = [](const FakeNccl::Call& call) {
    return FakeNccl::Trouble{.never_ends = call.rank == 1};
  };
  const auto found = outcomes(world, 2, [](int rank, NcclSession& session, RunContext& run) {
    session.connect(*session.found("p2p", {0, 1}, rank));
    wait_for_failure(run.guard);
  });
  EXPECT_THAT(found, Each(AllOf(HasSubstr("rank 1, host"), HasSubstr("in group p2p of ranks 0, 1"),
                                HasSubstr("nothing moved for 0.4 s"))));
}

TEST(NcclSession, OnlyTwoCanBeConnected) {
  World world;
  EXPECT_THAT(outcomes(world, 3,
                       [](int rank, NcclSession& session, RunContext&) {
                         const auto three = session.found("tp", {0, 1, 2}, rank);
                         EXPECT_THROW(session.connect(*three), std::logic_error);
                       }),
              Each(""));
}

// Every communicator of every rank is aborted, once, and nothing is asked of it afterwards.
void expect_all_aborted(World& world, int64_t never_made = 0) {
  EXPECT_THAT(world.nccl.problems(), IsEmpty());
  EXPECT_EQ(world.nccl.count("ncclCommAbort"), world.nccl.count("ncclCommInitRankConfig") - never_made);
  EXPECT_EQ(world.nccl.count("ncclCommDestroy"), 0);
}

TEST(NcclSession, AnErrorOfOneCallEndsAllRanksAndNamesCallRankOpAndPlace) {
  World world;
  world.nccl.trouble = [](const FakeNccl::Call& call) {
    if (call.rank == 3 && call.name == "ncclAllReduce" && call.count == 9)
      return FakeNccl::Trouble{.result = ncclInternalError};
    return FakeNccl::Trouble{};
  };
  const auto found = outcomes(world, 4, [](int rank, NcclSession& session, RunContext& run) {
    run_grid(rank, session, 2);
    wait_for_failure(run.guard);
  });
  EXPECT_THAT(found,
              Each(AllOf(HasSubstr("rank 3, tp, F0.1: ncclAllReduce: internal error: the last words"),
                         HasSubstr("9 bf16 in group tp of ranks 2, 3"), HasSubstr("nccl_session.cc:"))));
  EXPECT_EQ(world.nccl.count("ncclCommAbort"), world.nccl.count("ncclCommInitRankConfig"));
}

TEST(NcclSession, AnErrorThatNcclFindsLaterEndsAllRanks) {
  World world;
  world.nccl.trouble = [](const FakeNccl::Call& call) {
    if (call.rank == 1 && call.name == "ncclSend") return FakeNccl::Trouble{.async = ncclInternalError};
    return FakeNccl::Trouble{};
  };
  const auto found = outcomes(world, 4, [](int rank, NcclSession& session, RunContext& run) {
    run_grid(rank, session, 1);
    wait_for_failure(run.guard);
  });
  EXPECT_THAT(
      found, Each(AllOf(HasSubstr("rank 1, tp, F0.1: ncclSend of 8 bf16 to rank 3 in group p2p of ranks 1, 3 "
                                  "(nccl_session.cc:"),
                        HasSubstr("): internal error: the last words"))));
  expect_all_aborted(world);
}

TEST(NcclSession, ACallThatTheDeviceNeverEndsIsNamedByTheDeadline) {
  World world;
  world.deadline_s = 0.4;
  world.nccl.trouble = [](const FakeNccl::Call& call) {
    return FakeNccl::Trouble{.never_ends = call.rank == 2 && call.name == "ncclAllGather"};
  };
  const auto found = outcomes(world, 4, [](int rank, NcclSession& session, RunContext& run) {
    run_grid(rank, session, 1);
    wait_for_failure(run.guard);
  });
  EXPECT_THAT(found,
              Each(AllOf(HasSubstr("rank 2, tp, F0.1: ncclAllGather of 8 f64 in group tp of ranks 2, 3"),
                         HasSubstr("has not ended: nothing moved for 0.4 s"))));
  expect_all_aborted(world);
}

TEST(NcclSession, ACallThatNcclNeverStartsIsNamedByTheDeadline) {
  World world;
  world.deadline_s = 0.4;
  world.nccl.trouble = [](const FakeNccl::Call& call) {
    return FakeNccl::Trouble{.in_progress = call.rank == 0 && call.name == "ncclSend" ? -1 : 0};
  };
  const auto found = outcomes(world, 4, [](int rank, NcclSession& session, RunContext& run) {
    run_grid(rank, session, 1);
    wait_for_failure(run.guard);
  });
  EXPECT_THAT(found, Each(AllOf(HasSubstr("rank 0, tp, F0.1: ncclSend of 8 bf16 to rank 2 in group p2p"),
                                HasSubstr("does not get under way: nothing moved for 0.4 s"))));
  EXPECT_EQ(world.nccl.count("ncclCommAbort"), world.nccl.count("ncclCommInitRankConfig"));
}

TEST(NcclSession, AnInitialisationThatFailsOrNeverEndsEndsAllRanks) {
  for (const bool fails : {true, false}) {
    World world;
    world.deadline_s = 0.4;
    world.nccl.init_trouble = [&](int rank) {
      if (rank != 1) return FakeNccl::Trouble{};
      return fails ? FakeNccl::Trouble{.result = ncclSystemError} : FakeNccl::Trouble{.in_progress = -1};
    };
    const auto found = outcomes(world, 2, [](int rank, NcclSession& session, RunContext& run) {
      session.found("tp", {0, 1}, rank);
      wait_for_failure(run.guard);
    });
    EXPECT_THAT(found, Each(AllOf(HasSubstr("rank 1, "), HasSubstr("ncclCommInitRankConfig"),
                                  HasSubstr("group tp of ranks 0, 1"), HasSubstr("nccl_session.cc:"))));
    expect_all_aborted(world, fails ? 1 : 0);
  }
}

// NCCL tells the other rank of the failure sooner than the failing rank does.
TEST(NcclSession, TheCauseComesBeforeItsConsequence) {
  World world;
  world.nccl.trouble = [](const FakeNccl::Call& call) {
    if (call.name == "ncclAllReduce" && call.rank == 0) return FakeNccl::Trouble{.async = ncclRemoteError};
    return FakeNccl::Trouble{};
  };
  const auto found = outcomes(world, 2, [](int rank, NcclSession& session, RunContext& run) {
    const auto tp = session.found("tp", {0, 1}, rank);
    tp->all_reduce(place(rank), Reduce::sum, DType::f32, nullptr, 4, stream(1));
    if (rank == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      run.guard.fail("rank 1, compute, F0.1: out of memory");
    }
    wait_for_failure(run.guard);
  });
  EXPECT_THAT(found, Each("rank 1, compute, F0.1: out of memory"));
  expect_all_aborted(world);
}

TEST(NcclSession, ARemoteErrorWithoutACauseIsTold) {
  World world;
  world.nccl.trouble = [](const FakeNccl::Call& call) {
    return FakeNccl::Trouble{.async = call.rank == 0 ? ncclRemoteError : ncclSuccess};
  };
  const auto found = outcomes(world, 2, [](int rank, NcclSession& session, RunContext& run) {
    session.found("tp", {0, 1}, rank)
        ->all_reduce(place(rank), Reduce::sum, DType::f32, nullptr, 4, stream(1));
    wait_for_failure(run.guard);
  });
  EXPECT_THAT(found, Each(AllOf(HasSubstr("rank 0, tp, F0.1: ncclAllReduce"), HasSubstr("remote error"))));
}

TEST(NcclSession, GroupsInDifferentOrdersAreAnErrorAtOnce) {
  World world;
  const auto found = outcomes(world, 2, [](int rank, NcclSession& session, RunContext&) {
    session.found(rank == 0 ? "tp" : "dp", {0, 1}, rank);
    session.found(rank == 0 ? "dp" : "tp", {0, 1}, rank);
  });
  EXPECT_THAT(found, Each(HasSubstr("ranks ask for their groups in different orders")));
  EXPECT_EQ(world.nccl.count("ncclCommInitRankConfig"), 0);
}

TEST(NcclSession, MembersThatTuneDifferentlyAreRefused) {
  World world;
  world.retune = [](int rank, NcclOptions& options) { options.groups["tp"].max_ctas = 8 + 8 * rank; };
  const auto found = outcomes(world, 2, [&](int rank, NcclSession& session, RunContext&) {
    session.found("dp", {0, 1}, rank);
    session.found("tp", {0, 1}, rank);
  });
  EXPECT_THAT(found, Each(AllOf(HasSubstr("group tp of ranks 0, 1: its members differ"),
                                HasSubstr("CTAs any to 8"), HasSubstr("CTAs any to 16"))));
  expect_all_aborted(world);
}

TEST(NcclSession, AllReducesThatFitGoThroughTheWindow) {
  World world;
  world.options.groups["tp"].window_bytes = 64;
  std::array<float, 32> small{}, large{};
  const auto found = outcomes(world, 2, [&](int rank, NcclSession& session, RunContext&) {
    const auto tp = session.found("tp", {0, 1}, rank);
    tp->all_reduce(place(rank), Reduce::sum, DType::f32, small.data(), 16, stream(1));
    tp->all_reduce(place(rank), Reduce::sum, DType::f32, large.data(), 17, stream(1));
    session.found("dp", {0, 1}, rank)
        ->all_reduce(place(rank), Reduce::sum, DType::f32, small.data(), 16, stream(2));
    EXPECT_THROW(tp->all_reduce(place(rank), Reduce::sum, DType::f32, small.data(), 16, stream(2)),
                 std::logic_error);
  });
  EXPECT_THAT(found, Each(""));
  EXPECT_THAT(world.nccl.problems(), IsEmpty());
  const auto calls = world.nccl.calls(1);
  std::vector<std::string> names;
  for (const auto& call : calls)
    if (call.name == "copy" || call.name == "ncclAllReduce" || call.name.find("Window") != std::string::npos)
      names.push_back(call.name);
  EXPECT_THAT(names, ElementsAre("ncclCommWindowRegister", "copy", "ncclAllReduce", "copy", "ncclAllReduce",
                                 "ncclAllReduce", "ncclCommWindowDeregister"));
  const auto at = [&](const char* name, int skip) {
    auto found_at = calls.begin();
    for (;; ++found_at)
      if (found_at->name == name && skip-- == 0) return *found_at;
  };
  const void* window = at("ncclCommWindowRegister", 0).in;
  EXPECT_EQ(at("copy", 0).in, small.data());
  EXPECT_EQ(at("copy", 0).out, window);
  EXPECT_EQ(at("copy", 0).count, 64U);
  EXPECT_EQ(at("copy", 1).in, window);
  EXPECT_EQ(at("copy", 1).out, small.data());
  EXPECT_EQ(at("ncclAllReduce", 0).in, window);
  EXPECT_EQ(at("ncclAllReduce", 0).out, window);
  EXPECT_EQ(at("ncclAllReduce", 1).in, large.data());
  EXPECT_EQ(at("ncclAllReduce", 2).in, small.data());
}

TEST(NcclSession, RefusesWhatThisNcclHasNot) {
  RunGuard guard(std::chrono::duration<double>(1));
  Rendezvous alone({}, guard);
  const auto refused = [&](const NcclOptions& options, int version) {
    FakeNccl nccl;
    nccl.version = version;
    return refusal([&] { const NcclSession session(nccl.api(0), nccl.device(0), alone, guard, options); });
  };
  EXPECT_EQ(refused({}, 21903), "");
  EXPECT_THAT(refused({.standard = {.window_bytes = 8}}, 21903),
              HasSubstr("needs NCCL 2.27.3; here is 2.19.3"));
  EXPECT_THAT(refused({.standard = {}, .groups = {{"tp", {.policy = CtaPolicy::zero}}}}, 22703),
              AllOf(HasSubstr("nccl.tp: "), HasSubstr("needs NCCL 2.28.3")));
  EXPECT_THAT(refused({.standard = {.min_ctas = 5, .max_ctas = 4}}, 22809), HasSubstr("no range of CTAs"));
  EXPECT_THAT(refused({.standard = {.max_ctas = 65}}, 22809), HasSubstr("no range of CTAs"));
  EXPECT_THAT(refused({.standard = {.cga_cluster_size = 9}}, 22809), HasSubstr("no size of a cluster"));
  alone.end();
}

TEST(NcclSession, AbortsOneByOneWhereNcclKnowsNoGroupsOfThem) {
  World world;
  world.nccl.version = 22100;
  const auto found = outcomes(world, 2, [](int rank, NcclSession& session, RunContext& run) {
    session.found("tp", {0, 1}, rank);
    session.found("dp", {0, 1}, rank);
    if (rank == 0) run.guard.fail("enough");
    wait_for_failure(run.guard);
  });
  EXPECT_THAT(found, Each("enough"));
  expect_all_aborted(world);
}

TEST(NcclSessionDeathTest, AnAbortThatHangsEndsTheProcess) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        World world;
        world.deadline_s = 0.3;
        world.nccl.abort_hangs = true;
        outcomes(world, 1, [](int, NcclSession& session, RunContext& run) {
          session.found("tp", {0}, 0);
          run.guard.fail("enough");
        });
      },
      testing::ExitedWithCode(1), "NCCL does not return.*enough");
}

}  // namespace
}  // namespace stp::cuda
