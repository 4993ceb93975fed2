// Replays: one rank of a world alone does all that it does among the others, over emulated links.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <mutex>
#include <optional>
#include <set>

#include "stp/base/error.h"
#include "stp/device/bfloat16.h"
#include "stp/program/issue_order.h"
#include "stp/runtime/call_times.h"
#include "stp/runtime/chunk_state.h"
#include "support/effort.h"
#include "support/jobs.h"
#include "support/refusal.h"
#include "support/training.h"

namespace stp {
namespace {

using namespace testing_support;
using testing::HasSubstr;

struct Asked {
  std::mutex mutex;
  std::map<CallKind, int> calls;
};

CallTimes at_once(Asked& asked) {
  return [&asked](CallKind kind, double, const std::vector<int>&) {
    const std::lock_guard lock(asked.mutex);
    ++asked.calls[kind];
    return CallTime{};
  };
}

std::unique_ptr<Backend> alone(const RankGrid& grid, int rank, CallTimes times, double deadline_s = 20) {
  return cpu::make_replay_backend({.world_size = grid.size(), .deadline_s = deadline_s},
                                  {.rank = rank, .times = std::move(times)});
}

// Operations in BLAS since the backend was made.
double flops(Backend& backend, int rank) { return cpu::blas_use(backend, rank).flops; }

// Every rank of the world, alone, against itself among the others.
void expect_each_rank_does_the_same(const std::string& name, const RankGrid& grid, DType type,
                                    Variant variant = {}, const std::vector<int>& layers = {}) {
  variant.context_parallel = grid.cp;
  const int m = 2 * grid.pp;
  std::optional<Schedule> schedule;
  try {
    schedule = make_schedule(find_generator(name), {grid.pp, m});
  } catch (const InputError&) {
    return;
  }
  const Prepared prepared = prepare(*schedule, grid, type, variant, layers);
  const GridTraining& training = prepared.training;
  const Program& program = prepared.program;
  OnCpu together(training, program);
  const auto samples = together.samples();
  together.step();
  const std::vector<RankUse> expected = together.trainer.use();
  for (int rank = 0; rank < training.grid.size(); ++rank) {
    SCOPED_TRACE(name + " " + to_string(variant) + " tp " + std::to_string(grid.tp) + " dp " +
                 std::to_string(grid.dp) + " pp " + std::to_string(grid.pp) + ", world rank " +
                 std::to_string(rank));
    Asked asked;
    const auto backend = alone(training.grid, rank, at_once(asked));
    Trainer trainer(*backend, program, training);
    const StepResult step = trainer.step(samples);

    // Its own ops and what came to it have times, and nothing else has.
    const Program& ops = trainer.program();
    const int pp_rank = training.grid.place(rank).pp;
    int receives = 0, sends = 0, exchanges = 0, all_to_alls = 0;
    for (OpId op = 0; op < ops.ops.size(); ++op) {
      const auto& stream = ops.stream_of(op);
      const bool transfer = ops.ops[op].kind == OpKind::transfer;
      const bool own = op >= ops.rank_begin[pp_rank] && op < ops.rank_begin[pp_rank + 1];
      const bool comes = transfer && stream.peer == pp_rank;
      ASSERT_EQ(step.known[op], own || comes || is_of_all_stages(ops.ops[op].kind)) << describe(ops, op);
      if (transfer && own) sends += ops.ops[op].tensors();
      if (comes) receives += ops.ops[op].tensors();
      if (own && ops.ops[op].kind == OpKind::exchange)
        ++(rule_of(ops.ops[op].exchange).all_to_all ? all_to_alls : exchanges);
    }
    EXPECT_EQ(exchanges + all_to_alls > 0, grid.cp > 1 || variant.overlapped > 1);
    EXPECT_EQ(asked.calls[CallKind::all_to_all], all_to_alls);
    EXPECT_EQ(asked.calls[CallKind::transfer], sends + receives + exchanges);
    EXPECT_EQ(flops(*backend, rank), flops(*together.backend, rank));
    EXPECT_GT(flops(*backend, rank), 0);

    ASSERT_EQ(trainer.use().size(), 1U);
    const RankUse use = trainer.use()[0];
    EXPECT_EQ(use.world_rank, rank);
    expect_same_peaks(use, expected[rank], {"weights", "gradients", "optimizer", "data"});
    // With offload it depends on timing when memory is freed.
    if (variant.offload == 0) expect_same_peaks(use, expected[rank], {"saved"});
    expect_same_traffic(use.traffic, expected[rank].traffic);
    expect_nothing_left(*backend);
    // Every call over emulated links is counted, in a group of its kind.
    int calls = 0;
    for (const auto& [kind, count] : asked.calls) calls += count;
    for (const auto& [kind, use_of_links] : trainer.take_emulated_use()) {
      const int members = kind == "tp"   ? grid.tp
                          : kind == "cp" ? grid.cp
                          : kind == "dp" ? grid.cp * grid.dp
                          : kind == "pp" ? grid.pp
                                         : grid.size();
      EXPECT_GT(members, 1) << kind;
      EXPECT_GE(use_of_links.late_s, use_of_links.latest_s);
      EXPECT_EQ(use_of_links.link_bytes > 0, use_of_links.calls > 0);
      if (kind == "pp") {
        EXPECT_EQ(use_of_links.calls, sends + receives);
      }
      calls -= static_cast<int>(use_of_links.calls);
    }
    EXPECT_EQ(calls, 0);
    EXPECT_TRUE(together.trainer.take_emulated_use().empty());
    EXPECT_NO_THROW(trainer.step(samples));  // its weights are finite still
  }
}

TEST(Replay, EachRankOfEveryScheduleDoesTheSameAlone) {
  Sample sampled;
  for (const Generator* generator : generators())
    for (const int pp : {1, 2, 4})
      for (const int tp : {1, 2})
        if (sampled())
          expect_each_rank_does_the_same(generator->name, {.tp = tp, .pp = pp},
                                         tp == 1 ? DType::f32 : DType::f64);
}

TEST(Replay, SoDoesEachRankOfOtherGridsTypesAndOrders) {
  expect_each_rank_does_the_same("stp", {.tp = 2, .dp = 2, .pp = 2}, DType::bf16);
  expect_each_rank_does_the_same("zb-v", {.dp = 3, .pp = 2}, DType::f32);
  expect_each_rank_does_the_same("stp", {.tp = 4, .pp = 2}, DType::f32, {.release = Release::released});
  expect_each_rank_does_the_same("1f1b-i", {.tp = 2, .pp = 2}, DType::f32, {.release = Release::block},
                                 {0, 2, 1, 1});
  expect_each_rank_does_the_same("1f1b", {.pp = 2}, DType::f32, {}, {2, 0});
  expect_each_rank_does_the_same("1f1b", {.pp = 2}, DType::f32, {.model = {.tied = true}});
}

TEST(Replay, SoDoesEachRankOfARing) {
  expect_each_rank_does_the_same("stp", {.cp = 2, .pp = 2}, DType::f32);
  expect_each_rank_does_the_same("1f1b", {.cp = 4}, DType::bf16, {.recompute = {.core = true}});
  expect_each_rank_does_the_same("zb-v", {.tp = 2, .pp = 2}, DType::f32,
                                 {.sequence_parallel = true, .overlapped = 2});
  expect_each_rank_does_the_same("1f1b-i", {.tp = 2, .cp = 2, .pp = 2}, DType::f64,
                                 {.sequence_parallel = true, .overlapped = 2});
}
TEST(Replay, SoDoesEachRankThatExchangesHeads) {
  expect_each_rank_does_the_same("zb-v", {.cp = 4, .pp = 2}, DType::f32,
                                 {.recompute = {.core = true}, .cp_method = CpMethod::all_to_all});
}

TEST(Replay, SoDoesEachRankThatOffloads) {
  expect_each_rank_does_the_same("stp", {.tp = 2, .pp = 2}, DType::f32, {.offload = 0.5});
}

// Of bf16 and ZeRO-1, so that the masters are parts that begin anywhere.
TEST(Replay, RepeatsInitialValuesThatDiffer) {
  constexpr int kRepeat = 50;
  auto training = small_training(2, DType::bf16, {});
  training.initial_repeat = kRepeat;
  const auto backend = cpu::make_backend({.world_size = 1, .deadline_s = 20});
  Device& device = backend->device(0);
  const auto stream = device.make_stream("compute", StreamPriority::compute);
  const auto chunk = [&](int dp, int replica) {
    return make_chunk(backend->guard(), device, *stream, training, {0, 2, true, true},
                      {.dp = dp, .zero = true}, {.dp = replica});
  };
  ChunkState whole = chunk(1, 0), second = chunk(3, 1);
  const BucketState &of_whole = whole.buckets.at(0), &of_second = second.buckets.at(0);
  const auto values = [&](const Tensor& tensor) { return download_doubles(device, *stream, tensor); };
  for (ParameterState* state : whole.all()) {
    const std::vector<double> found = values(state->weight), masters = values(of_whole.master);
    for (size_t i = 0; i < found.size(); ++i) {
      ASSERT_EQ(found[i], found[i % kRepeat]) << i;
      ASSERT_EQ(found[i], Bfloat16(static_cast<float>(masters[state->begin + i]))) << i;
    }
    EXPECT_GT(std::set(found.begin(), found.end()).size(), std::min<size_t>(found.size(), kRepeat) / 2);
  }
  const std::vector<double> all = values(of_whole.master), own = values(of_second.master);
  for (size_t i = 0; i < own.size() && of_second.share_begin + i < all.size(); ++i)
    ASSERT_EQ(own[i], all[of_second.share_begin + i]) << i;
  for (ChunkState* each : {&whole, &second}) release_chunk(device, *stream, *each);
}

// Nothing that comes is there sooner than its link allows, whatever waits for it.
constexpr double kTransfer = 2e-3, kAllReduce = 1e-3;

TEST(Replay, NoTransferOrCollectiveTakesLessThanItsLinksDo) {
  const CallTimes times = [](CallKind kind, double, const std::vector<int>&) {
    return kind == CallKind::all_reduce ? CallTime{kAllReduce, 0} : CallTime{kTransfer / 2, kTransfer / 2};
  };
  for (const char* name : {"stp", "1f1b", "zb-v"}) {
    const Schedule schedule = make_schedule(find_generator(name), {2, 4});
    const auto [training, program] = prepare(schedule, {.tp = 2, .pp = 2}, DType::f32, {});
    for (const int rank : {0, 3}) {
      const auto backend = alone(training.grid, rank, times);
      Trainer trainer(*backend, program, training);
      const StepResult step = trainer.step(samples_for(trainer.program(), training));
      const Program& ops = trainer.program();
      std::map<uint32_t, double> link_free;  // by stream: when its last transfer ended
      int transfers = 0, reduces = 0;
      for (OpId op = 0; op < ops.ops.size(); ++op) {
        if (!step.known[op]) continue;
        SCOPED_TRACE(std::string(name) + ", rank " + std::to_string(rank) + ": " + describe(ops, op));
        const OpTime time = step.times[op];
        if (ops.stream_of(op).rank == training.grid.place(rank).pp) {  // not what peers would have done
          for (const OpId needed : ops.dependencies(op)) {
            ASSERT_TRUE(step.known[needed]);
            EXPECT_GE(time.start, step.times[needed].end);
          }
        }
        if (ops.ops[op].kind == OpKind::transfer) {
          double& free = link_free[ops.on_stream[op]];
          EXPECT_GE(time.start, free);
          free = time.end;
          if (time.start == 0) continue;  // began before the first op, from which times count
          EXPECT_GE(time.end - time.start, kTransfer * ops.ops[op].tensors());
          ++transfers;
        } else if (ops.ops[op].kind == OpKind::all_reduce) {
          EXPECT_GE(time.end - time.start, kAllReduce);
          ++reduces;
        }
      }
      EXPECT_GE(transfers, 4);
      EXPECT_GE(reduces, 16);
      EXPECT_GE(step.step_s, 4 * kTransfer);  // of a link's transfers one after the other
    }
  }
}

// A receive that waits occupies the device: of each link as few are posted as the Program needs at once.
TEST(Replay, ReceivesArePostedWhenTheOneBeforeWasTaken) {
  for (const char* name : {"1f1b", "stp"}) {
    const auto training = small_training(4, DType::f32, {.pp = 2});
    for (const int rank : {0, 1}) {
      Asked asked;
      const auto backend = alone(training.grid, rank, at_once(asked));
      Trainer trainer(*backend, program_of(name, training.grid, 4, 4), training);
      const StepResult step = trainer.step(samples_for(trainer.program(), training));
      const Program& program = trainer.program();
      std::map<uint32_t, std::vector<OpId>> received;  // by link
      for (OpId op = 0; op < program.ops.size(); ++op)
        if (program.ops[op].kind == OpKind::transfer && program.stream_of(op).peer == rank)
          received[program.on_stream[op]].push_back(op);
      const auto taken = [&](OpId transfer) {
        for (OpId op = program.rank_begin[rank]; op < program.rank_begin[rank + 1]; ++op)
          for (const OpId needed : program.dependencies(op))
            if (needed == transfer) return step.times[op].end;
        throw std::logic_error("nothing waits for a transfer");
      };
      const auto ahead = static_cast<size_t>(issue_order(program).receives_ahead);
      size_t limited = 0;
      for (const auto& [link, transfers] : received)
        for (size_t n = ahead; n < transfers.size(); ++n, ++limited)
          EXPECT_GE(step.times[transfers[n]].start, taken(transfers[n - ahead]))
              << name << ", rank " << rank << ": " << describe(program, transfers[n]);
      EXPECT_GT(limited, 0U);
    }
  }
}

std::string failure_alone(const GridTraining& training, const BackendOptions& options, int rank,
                          const CallTimes& times) {
  return error_of<std::runtime_error>([&] {
    const auto backend = cpu::make_replay_backend(options, {.rank = rank, .times = times});
    Trainer trainer(*backend, program_of("1f1b", training.grid, 4, 2), training);
    trainer.step(samples_for(trainer.program(), training));
  });
}

// A link's members are its sender and its receiver, in this order; nodes are those of both.
TEST(CallTimes, OfALinkAreTheSameBothWays) {
  HardwareProfile profile = a800();
  profile.gpus_per_node = 2;
  const CallTimes times = call_times(profile);
  for (const auto& [low, high] : {std::pair{0, 1}, {0, 2}, {1, 5}})
    for (const CallKind kind : {CallKind::transfer, CallKind::all_to_all}) {
      const CallTime up = times(kind, 1e6, {low, high}), down = times(kind, 1e6, {high, low});
      const bool within = high < 2;
      EXPECT_EQ(up.latency_s, (within ? profile.within_node : profile.between_nodes).latency_s);
      EXPECT_EQ(down.latency_s, up.latency_s);
      EXPECT_EQ(down.transfer_s, up.transfer_s);
    }
}

// A call that would block a rank forever fails at once and names the place.
TEST(Replay, APeerThatWouldNeverComeIsAFailureThatNamesRankStreamAndOp) {
  const auto training = small_training(2, DType::f32, {.tp = 2, .pp = 2});
  const BackendOptions options{.world_size = 4, .deadline_s = 5};
  const auto never = [](CallKind which) {
    return [which](CallKind kind, double, const std::vector<int>& members) {
      // Of two: a link or a tensor-parallel group; the group of the whole model has four. Links from stage 0
      // alone: receives of stage 0 are posted before it sends.
      const bool other_way = kind == CallKind::transfer && members.front() > members.back();
      return CallTime{kind == which && members.size() == 2 && !other_way ? 1e9 : 0, 0};
    };
  };
  const std::string receive = failure_alone(training, options, 2, never(CallKind::transfer));
  EXPECT_THAT(receive, HasSubstr("rank 2, receive from rank 0, "));
  EXPECT_THAT(receive, HasSubstr("transfer to rank 1 of F0.0: transfer of 12 x 16 f32 takes 1e+09 s over its "
                                 "emulated link, more than the run's deadline of 5 s"));
  EXPECT_THAT(failure_alone(training, options, 0, never(CallKind::transfer)),
              HasSubstr("rank 0, send to rank 1, "));
  EXPECT_THAT(failure_alone(training, options, 3, never(CallKind::all_reduce)), HasSubstr("all-reduce"));
}

TEST(Replay, AFailureOfItsOwnWorkEndsWhatItWaitsFor) {
  const auto training = small_training(2, DType::f32, {.pp = 2});
  const CallTimes slow = [](CallKind, double, const std::vector<int>&) { return CallTime{3e4, 0}; };
  // Enough to set up, not to run: while the first receive is awaited for hours.
  size_t limit = 0;
  {
    Asked asked;
    const auto backend = alone(training.grid, 0, at_once(asked));
    Trainer trainer(*backend, program_of("1f1b", training.grid, 4, 2), training);
    limit = trainer.use()[0].peak_total + 1000;
  }
  EXPECT_THAT(failure_alone(training, {.world_size = 2, .deadline_s = 1e5, .memory_limit = limit}, 0, slow),
              HasSubstr("out of memory"));
}

}  // namespace
}  // namespace stp
