// NCCL as it is called: processes are threads of this one, NCCL and the GPU's streams are stand-ins.
#include "stp/cuda/nccl/nccl_groups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <stdexcept>

#include "stp/base/error.h"
#include "support/fake_cuda.h"
#include "support/fake_nccl.h"
#include "support/nccl_process.h"
#include "support/processes_as_threads.h"

namespace stp::cuda {
namespace {

using namespace testing_support;
using testing::AllOf;
using testing::Each;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

/// A deadline that is reached only where something is stuck, but soon.
constexpr double kStuck = 1;

struct NcclWorld {
  NcclWorld() { fake_cuda::reset(1); }
  FakeNccl nccl;
  NcclOptions options;
  double deadline_s = 20;
};

/// How each process ended: "" or its failure. What `program` throws fails the run, as the trainer has it.
std::vector<std::string> outcomes(NcclWorld& world, int count,
                                  const std::function<void(NcclProcess&)>& program) {
  return run_processes(count, [&](Processes& own) {
    FakeNccl::be(own.index());
    NcclProcess process(own, world.deadline_s, world.options);
    try {
      program(process);
      process.device.synchronize();
    } catch (const Cancelled&) {
    } catch (const std::exception& error) {
      process.run.guard.fail(error.what());
    }
    process.groups.reset();
    if (process.run.guard.failed()) throw std::runtime_error(process.run.guard.failure());
  });
}

// Two stages of two tensor-parallel ranks, and links both ways: `steps` times each stage sums what it has,
// or got, and hands it on; the first stage ends with what the second made of it. All processes make their
// calls in one order.
void run_grid(
    NcclProcess& process, int steps, const std::function<void(int step)>& before = [](int) {}) {
  const int rank = process.rank(), first = rank / 2 * 2, top = rank % 2, bottom = top + 2;
  const auto tp = process.group("tp", {first, first + 1});
  const auto forward = process.group("p2p", {top, bottom}, GroupUse::transfers),
             backward = process.group("p2p", {bottom, top}, GroupUse::transfers);
  const auto on_tp = process.stream("tp"), down = process.stream("down"), up = process.stream("up");
  for (int i = 0; i < steps; ++i) {
    before(i);
    for (Stream* stream : {on_tp.get(), down.get(), up.get()}) stream->begin(i);
    if (rank < 2) {
      const Tensor made = process.tensor(*on_tp, DType::f32, 1, 8 + i, rank + 1),
                   got = process.tensor(*up, DType::f32, 1, 8 + i, 0);
      tp->all_reduce(Reduce::sum, part(*on_tp, made));
      down->wait(on_tp->record());
      forward->transfer(part(*down, made, {}));
      backward->transfer(part(*up, {}, got));
      if (i + 1 == steps) {
        EXPECT_THAT(process.floats(*up, got), Each(6));
      }
    } else {
      const Tensor got = process.tensor(*down, DType::f32, 1, 8 + i, 0);
      forward->transfer(part(*down, {}, got));
      on_tp->wait(down->record());
      tp->all_reduce(Reduce::sum, part(*on_tp, got));
      up->wait(on_tp->record());
      backward->transfer(part(*up, got, {}));
    }
  }
  EXPECT_EQ(tp->traffic(0).calls, steps);
  EXPECT_EQ((rank < 2 ? forward : backward)->traffic(0).sent_bytes,
            4 * (8 * steps + steps * (steps - 1) / 2));
  EXPECT_EQ((rank < 2 ? backward : forward)->traffic(0).sent_bytes, 0);
  process.device.synchronize();
}
void run_three_steps(NcclProcess& process) { run_grid(process, 3); }

void expect_ends_well(NcclWorld& world, int count, const std::function<void(NcclProcess&)>& program) {
  EXPECT_THAT(outcomes(world, count, program), Each(""));
  EXPECT_THAT(world.nccl.problems(), IsEmpty());
}

// Each sends before it receives: as two calls, all would wait for each other.
TEST(NcclGroups, ARingSendsAndReceivesAtOnce) {
  constexpr int kRanks = 4, kSteps = 3;
  NcclWorld world;
  expect_ends_well(world, kRanks, [](NcclProcess& process) {
    const auto ring = process.group("cp", {0, 1, 2, 3}, GroupUse::transfers);
    const auto stream = process.stream("cp");
    Tensor sent = process.tensor(*stream, DType::f32, 1, 8, process.rank()),
           got = process.tensor(*stream, DType::f32, 1, 8, -1);
    for (int i = 0; i < kSteps; ++i) {
      stream->begin(i);
      Part both = {stream.get(), sent, got};
      ring->transfer({&both, 1});
      std::swap(sent, got);
    }
    const auto from = static_cast<float>((process.rank() + kRanks - kSteps) % kRanks);
    EXPECT_THAT(process.floats(*stream, sent), Each(from));
    process.device.synchronize();
  });
  EXPECT_EQ(world.nccl.count("ncclCommInitRankConfig"), kRanks);
}

// In one communicator, however many members there are, and with blocks of other lengths, also of none.
TEST(NcclGroups, AnAllToAllSendsAndReceivesAtOnce) {
  constexpr int kRanks = 5;
  const auto rows = [](int from, int to) { return int64_t{(2 * from + to) % 3}; };
  NcclWorld world;
  expect_ends_well(world, kRanks, [&](NcclProcess& process) {
    const auto group = process.group("cp", {0, 1, 2, 3, 4});
    const auto stream = process.stream("cp");
    Part part{stream.get(), {}, {}};
    std::vector<float> expected;
    int64_t sent = 0, received = 0;
    for (int other = 0; other < kRanks; ++other) {
      sent += part.sent_rows.emplace_back(rows(process.rank(), other));
      received += part.received_rows.emplace_back(rows(other, process.rank()));
      expected.insert(expected.end(), 2 * rows(other, process.rank()), static_cast<float>(other));
    }
    part.in = process.tensor(*stream, DType::f32, sent, 2, process.rank());
    part.out = process.tensor(*stream, DType::f32, received, 2, -1);
    for (int i = 0; i < 3; ++i) {
      stream->begin(i);
      group->all_to_all({&part, 1});
    }
    EXPECT_EQ(process.floats(*stream, part.out), expected);
    process.device.synchronize();
  });
  EXPECT_EQ(world.nccl.count("ncclCommInitRankConfig"), kRanks);
}

TEST(NcclGroups, AreMadeUsedAndEnded) {
  NcclWorld world;
  expect_ends_well(world, 4, run_three_steps);
  EXPECT_EQ(world.nccl.count("ncclGetUniqueId"), 6);
  EXPECT_EQ(world.nccl.count("ncclCommInitRankConfig"), 12);
  EXPECT_EQ(world.nccl.count("set-up: ncclCommDestroy"), 12) << "each becomes one whose calls block";
  EXPECT_EQ(world.nccl.count("ncclCommFinalize"), 12);
  EXPECT_EQ(world.nccl.count("ncclCommDestroy"), 12);
  EXPECT_EQ(world.nccl.count("ncclCommAbort"), 0);
}

TEST(NcclGroups, CallNcclWithCountsTypesAndStreams) {
  NcclWorld world;
  std::array<cudaStream_t, 3> streams{};
  expect_ends_well(world, 3, [&](NcclProcess& process) {
    const auto group = process.group("tp", {0, 1, 2});
    const auto tp = process.stream("tp");
    streams[process.rank()] = cuda_stream(*tp).handle();
    const auto tensor = [&](DType type, int64_t rows, int64_t columns) {
      return process.tensor(*tp, type, rows, columns, process.rank());
    };
    const Tensor whole = tensor(DType::f32, 9, 2), share = tensor(DType::f32, 3, 2);
    group->all_reduce(Reduce::sum, part(*tp, tensor(DType::bf16, 5, 3)));
    group->all_reduce(Reduce::maximum, part(*tp, tensor(DType::f32, 5, 1)));
    group->all_gather(part(*tp, tensor(DType::f64, 2, 4), tensor(DType::f64, 6, 4)));
    group->reduce_scatter(part(*tp, whole, share));
    EXPECT_THAT(process.floats(*tp, share), Each(0 + 1 + 2));
    group->give({CallKind::reduce_scatter, Reduce::maximum, part(*tp, whole, share)});
    EXPECT_THAT(process.floats(*tp, share), Each(2));
    const Traffic& traffic = group->traffic(0);
    EXPECT_EQ(traffic.all_reduce_bytes, 5 * 3 * 2 + 5 * 4);
    EXPECT_EQ(traffic.all_gather_bytes, 2 * 4 * 8);
    EXPECT_EQ(traffic.reduce_scatter_bytes, 2 * 9 * 2 * 4);
    EXPECT_EQ(traffic.calls, 5);
  });
  const auto calls = world.nccl.work(1);
  ASSERT_THAT(calls, SizeIs(5));
  const auto is = [&](const FakeNccl::Call& call, const char* name, size_t count, int type) {
    EXPECT_EQ(call.name, name);
    EXPECT_EQ(call.count, count) << name;
    EXPECT_EQ(call.type, type) << name;
    EXPECT_EQ(call.stream, streams[1]) << name;
  };
  is(calls[0], "ncclAllReduce", 15, ncclBfloat16);
  is(calls[1], "ncclAllReduce", 5, ncclFloat32);
  is(calls[2], "ncclAllGather", 8, ncclFloat64);      // of each member
  is(calls[3], "ncclReduceScatter", 6, ncclFloat32);  // for each member
  EXPECT_EQ(calls[0].op, ncclSum);
  EXPECT_EQ(calls[1].op, ncclMax);
  EXPECT_EQ(calls[0].in, calls[0].out);
}

TEST(NcclGroups, TellNcclHowToUseTheDevice) {
  NcclWorld world;
  world.options.standard.max_ctas = 12;
  world.options.groups["p2p"] = {.min_ctas = 1, .max_ctas = 2, .cga_cluster_size = 4};
  EXPECT_THAT(outcomes(world, 4, run_three_steps), Each(""));
  const auto configs = world.nccl.configs(3);
  ASSERT_THAT(configs, SizeIs(3));
  EXPECT_EQ(configs[0].maxCTAs, 12);
  EXPECT_EQ(configs[0].minCTAs, NCCL_CONFIG_UNDEF_INT);
  EXPECT_EQ(configs[0].cgaClusterSize, NCCL_CONFIG_UNDEF_INT);
  EXPECT_EQ(configs[1].maxCTAs, 2);
  EXPECT_EQ(configs[1].minCTAs, 1);
  EXPECT_EQ(configs[1].cgaClusterSize, 4);
}

// Their kernels wait for the peer on all their CTAs.
TEST(NcclGroups, LinksTakeFewCtasUnlessTheyAreToldOtherwise) {
  for (const int least : {0, 6}) {
    NcclWorld world;
    world.options.groups["p2p"].min_ctas = least;
    EXPECT_THAT(outcomes(world, 4, run_three_steps), Each(""));
    const auto configs = world.nccl.configs(0);
    ASSERT_THAT(configs, SizeIs(3));
    EXPECT_EQ(configs[0].maxCTAs, NCCL_CONFIG_UNDEF_INT) << "of a collective NCCL knows best";
    for (const size_t link : {1, 2}) EXPECT_EQ(configs[link].maxCTAs, least == 0 ? 4 : least);
  }
}

TEST(NcclGroups, WaitUntilNcclIsDoneWithASetUp) {
  NcclWorld world;
  world.nccl.init_trouble = [](int process) { return FakeNccl::Trouble{.in_progress = 50 * process}; };
  expect_ends_well(world, 4, run_three_steps);
}

TEST(NcclGroups, OfOneMemberNcclKnowsNothing) {
  NcclWorld world;
  const auto found = outcomes(world, 2, [](NcclProcess& process) {
    const auto alone = process.group("tp", {process.rank()});
    const auto tp = process.stream("tp");
    const Tensor in = process.tensor(*tp, DType::f32, 2, 3, 5),
                 gathered = process.tensor(*tp, DType::f32, 2, 3, 0),
                 scattered = process.tensor(*tp, DType::f32, 2, 3, 0);
    alone->all_reduce(Reduce::sum, part(*tp, in));
    EXPECT_EQ(alone->traffic(0).calls, 0);
    alone->all_gather(part(*tp, in, gathered));
    alone->reduce_scatter(part(*tp, in, scattered));
    EXPECT_EQ(alone->traffic(0).all_gather_bytes, 24);
    EXPECT_THAT(process.floats(*tp, gathered), Each(5));
    EXPECT_THAT(process.floats(*tp, scattered), Each(5));
  });
  EXPECT_THAT(found, Each(""));
  EXPECT_THAT(world.nccl.calls(1), IsEmpty());
}

// ---- failures ----

// Every communicator of every process is aborted, once, and nothing is asked of it afterwards.
void expect_all_aborted(NcclWorld& world, int64_t never_made = 0) {
  EXPECT_THAT(world.nccl.problems(), IsEmpty());
  EXPECT_EQ(world.nccl.count("ncclCommAbort"), world.nccl.count("ncclCommInitRankConfig") - never_made);
  EXPECT_EQ(world.nccl.count("ncclCommDestroy"), 0);
}

// How four processes end that make three steps, where the call `name` of one of them, of so many elements, is
// in trouble; 0: of any number.
std::vector<std::string> outcomes_with(NcclWorld& world, int process, const char* name, size_t count,
                                       const FakeNccl::Trouble& trouble) {
  world.deadline_s = kStuck;
  world.nccl.trouble = [=](const FakeNccl::Call& call) {
    const bool it = call.process == process && call.name == name && (count == 0 || call.count == count);
    return it ? trouble : FakeNccl::Trouble{};
  };
  return outcomes(world, 4, run_three_steps);
}

// The process says which call; the others wait for it until their deadline, and say for what.
TEST(NcclGroups, AnErrorOfOneCallNamesItAndEndsAllProcesses) {
  NcclWorld world;
  const auto found = outcomes_with(world, 3, "ncclAllReduce", 9, {.result = ncclInternalError});
  EXPECT_EQ(found[3],
            "all-reduce (sum) of 1 x 9 f32 in group tp of ranks 2, 3: NCCL: internal error: the last words");
  EXPECT_THAT(found[2],
              AllOf(HasSubstr("rank 2, tp, F0.1, all-reduce (sum) of 1 x 9 f32 in group tp of ranks 2, 3"),
                    HasSubstr("is not done"), HasSubstr("nothing moved for 1 s")));
  for (const int rank : {0, 1}) EXPECT_THAT(found[rank], HasSubstr("is not done"));
  EXPECT_EQ(world.nccl.count("ncclCommAbort"), world.nccl.count("ncclCommInitRankConfig"));
}

TEST(NcclGroups, AnErrorThatNcclFindsLaterIsFoundWhereTheHostWaits) {
  NcclWorld world;
  const auto found = outcomes_with(world, 1, "ncclSend", 0, {.async = ncclRemoteError, .never_ends = true});
  EXPECT_THAT(
      found[1],
      HasSubstr("transfer of 1 x 8 f32 in group p2p of ranks 1, 3: NCCL: remote error: the last words"));
  EXPECT_THAT(found, Each(testing::Ne("")));
  expect_all_aborted(world);
}

TEST(NcclGroups, ACallThatTheDeviceNeverEndsIsNamedAtTheDeadline) {
  NcclWorld world;
  const auto found = outcomes_with(world, 2, "ncclAllReduce", 9, {.never_ends = true});
  for (const int rank : {2, 3})
    EXPECT_THAT(found[rank],
                AllOf(HasSubstr("rank " + std::to_string(rank) +
                                ", tp, F0.1, all-reduce (sum) of 1 x 9 f32 in group tp of ranks 2, 3"),
                      HasSubstr("is not done"), HasSubstr("nothing moved for 1 s")));
  expect_all_aborted(world);
}

// It blocks, so the thread that made it cannot say so.
TEST(NcclGroupsDeathTest, ACallThatDoesNotReturnEndsTheProcessAtTheDeadline) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        NcclWorld world;
        outcomes_with(world, 0, "ncclSend", 0, {.never_returns = true});
      },
      testing::ExitedWithCode(1),
      "transfer of 1 x 8 f32 in group p2p of ranks 0, 2 does not return: nothing moved for 1 s");
}

TEST(NcclGroups, ACommunicatorThatIsNotMadeIsNamed) {
  for (const bool fails : {true, false}) {
    NcclWorld world;
    world.deadline_s = kStuck / 10;  // which is longer for this
    world.nccl.init_trouble = [&](int process) {
      if (process != 1) return FakeNccl::Trouble{};
      return fails ? FakeNccl::Trouble{.result = ncclSystemError} : FakeNccl::Trouble{.in_progress = -1};
    };
    const auto found = outcomes(world, 2, [](NcclProcess& process) { process.group("tp", {0, 1}); });
    EXPECT_THAT(found[1],
                AllOf(HasSubstr("rank 1, host: ncclCommInitRankConfig of group tp of ranks 0, 1"),
                      HasSubstr(fails ? "NCCL: system error: the last words" : "does not get under way")));
    if (!fails) {
      EXPECT_THAT(found[1], HasSubstr("nothing moved for 1 s")) << "ten deadlines";
    }
    if (fails) expect_all_aborted(world, 1);
  }
}

// A process whose host fails at something else, in the middle of a step.
TEST(NcclGroups, AProcessThatDiesAbortsItsGroupsAndTheOthersEndAtTheDeadline) {
  NcclWorld world;
  world.deadline_s = kStuck;
  const auto found = run_processes(4, [&](Processes& own) {
    FakeNccl::be(own.index());
    NcclProcess process(own, world.deadline_s);
    run_grid(process, 3, [&](int step) {
      if (step == 1 && own.index() == 3) throw std::runtime_error("the disk is full");
    });
  });
  EXPECT_EQ(found[3], "the disk is full");
  EXPECT_THAT(found, Each(testing::Ne("")));
  expect_all_aborted(world);
}

TEST(NcclGroups, AfterAFailureNothingIsCalled) {
  NcclWorld world;
  const auto found = outcomes(world, 2, [](NcclProcess& process) {
    const auto tp = process.group("tp", {0, 1});
    const auto stream = process.stream("tp");
    const Tensor tensor = process.tensor(*stream, DType::f32, 1, 4, 0);
    tp->all_reduce(Reduce::sum, part(*stream, tensor));
    process.device.synchronize();
    process.run.guard.fail("enough");
    tp->all_reduce(Reduce::sum, part(*stream, tensor));
  });
  EXPECT_THAT(found, Each("enough"));
  EXPECT_EQ(world.nccl.count("ncclAllReduce"), 2);
  expect_all_aborted(world);
}

TEST(NcclGroups, MakeAFirstCallThatIsPatientAndWhoseResultIsKnown) {
  for (const bool ends : {true, false}) {
    NcclWorld world;
    world.options.probes = true;
    world.deadline_s = ends ? 60 : 0.1;
    world.nccl.trouble = [&](const FakeNccl::Call& call) {
      return FakeNccl::Trouble{.never_ends = !ends && call.name == "ncclAllReduce"};
    };
    const auto found = outcomes(world, 3, [](NcclProcess& process) {
      const auto p2p = process.group("p2p", {0, 1, 2}, GroupUse::transfers),
                 tp = process.group("tp", {0, 1, 2});
      process.device.synchronize();
    });
    EXPECT_EQ(world.nccl.count("ncclAllReduce"), 3);
    EXPECT_EQ(world.nccl.count("ncclSend"), 3);
    if (ends) {
      EXPECT_THAT(found, Each(""));
    } else {
      EXPECT_THAT(
          found, testing::Contains(AllOf(HasSubstr("the first call of group tp of ranks 0, 1, 2 is not done"),
                                         HasSubstr("nothing moved for 1 s"))));
    }
  }
}

TEST(NcclGroups, AreAbortedOneByOneWhereNcclKnowsNoGroupsOfAborts) {
  NcclWorld world;
  world.nccl.version = 22100;
  EXPECT_THAT(outcomes(world, 2,
                       [](NcclProcess& process) {
                         const auto tp = process.group("tp", {0, 1}), dp = process.group("dp", {0, 1});
                         process.run.guard.fail("enough");
                       }),
              Each("enough"));
  expect_all_aborted(world);
}

TEST(NcclGroupsDeathTest, AnAbortThatHangsEndsTheProcess) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        NcclWorld world;
        world.deadline_s = 0.3;
        world.nccl.abort_hangs = true;
        outcomes(world, 1, [](NcclProcess& process) {
          process.groups->join("tp", {0}, GroupUse::collectives);
          process.run.guard.fail("enough");
        });
      },
      testing::ExitedWithCode(1), "NCCL does not return.*enough");
}

}  // namespace
}  // namespace stp::cuda
