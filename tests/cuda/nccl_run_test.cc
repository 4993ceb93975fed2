// What `stp run` does where a launcher started one process per GPU: the driver, the backends by name and
// NCCL's groups, on stand-ins for CUDA and NCCL. Processes are threads, as in nccl_training_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "process_share.h"
#include "run_measured.h"
#include "run_simulated.h"
#include "stp/backends/backends.h"
#include "support/effort.h"
#include "support/fake_cublas_lt.h"
#include "support/fake_cuda.h"
#include "support/fake_nccl.h"
#include "support/processes_as_threads.h"
#include "support/refusal.h"
#include "support/training.h"

namespace stp {
namespace {

using namespace testing_support;
using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Ne;
using testing::Not;

constexpr int kSteps = kStride > 1 ? 1 : 2;  // and one before them

Experiment experiment(RankGrid grid, DType type) {
  Experiment made;
  made.schedules = {{"stp", "", 0}};
  made.strategy.tp = grid.tp;
  made.strategy.pp = grid.pp;
  made.strategy.dp = grid.dp;
  made.microbatches = 2;
  made.microbatch_size = kStride > 1 ? 1 : 2;
  made.layers_per_chunk = {1, 1, 1, 1};
  Experiment::Run run{};
  run.model = small_model(4);
  run.seq = kStride > 1 ? 3 : 6;
  run.type = type;
  run.steps = kSteps;
  run.warmup = 1;
  run.initialisation = {.seed = 5, .weight_deviation = 0.2, .bias_deviation = 0.1, .gain_deviation = 0.1};
  run.clip_norm = 0.5;
  run.parity = true;
  made.run = run;
  return made;
}

struct Outcome {
  std::vector<std::optional<MeasuredRun>> runs;  // by process
  std::vector<std::string> failures;
};

// `stepped` is called in each process after every step.
Outcome run_of_processes(
    const Experiment& experiment, int count,
    const std::function<void(int process, int step)>& stepped = [](int, int) {},
    const std::vector<std::string>& nccl = {}) {
  Outcome outcome{std::vector<std::optional<MeasuredRun>>(count), {}};
  outcome.failures = run_processes(count, [&](Processes& own) {
    FakeNccl::be(own.index());
    DeviceOptions options;
    options.backend = "cuda";
    options.deadline_s = 5;
    options.nccl = nccl;
    options.processes = &own;
    int step = 0;
    outcome.runs[own.index()] = run_measured(experiment.schedules[0], experiment, "s.json", options, nullptr,
                                             [&] { stepped(own.index(), ++step); });
  });
  return outcome;
}

MeasuredRun run_of_one_process(const Experiment& experiment, DeviceOptions options = {}) {
  options.backend = "cuda";
  return *run_measured(experiment.schedules[0], experiment, "s.json", options, nullptr, [] {});
}

// Each op of each pipeline rank has a time, after what it waits for on its own rank, within the step.
void expect_whole_timeline(const MeasuredRun& run) {
  const Timeline& timeline = run.timeline;
  ASSERT_EQ(timeline.start.size(), run.program.ops.size());
  for (OpId op = 0; op < run.program.ops.size(); ++op) {
    EXPECT_TRUE(timeline.has(op)) << op;
    EXPECT_LE(0, timeline.start[op]);
    EXPECT_LE(timeline.start[op], timeline.end[op]);
    EXPECT_LE(timeline.end[op], timeline.step_s);
  }
  EXPECT_EQ(timeline.step_s, run.result.step_times_s.back());
  // Times count from one moment for all: the second pipeline rank waits for the first's forward.
  const auto begin = run.program.rank_begin;
  EXPECT_GT(*std::min_element(timeline.start.begin() + begin[1], timeline.start.begin() + begin[2]), 0);
  for (const RankTime& rank : timeline.ranks)
    EXPECT_NEAR(rank.compute_s + rank.pp_bubble_s + rank.tp_bubble_s, timeline.step_s, 1e-9);
}

// Of two pipeline ranks each has the times of its own ops, and of what came to it from the other.
TEST(ProcessShare, IsPutTogetherWithTheSendersTimes) {
  const Experiment one = experiment({.pp = 2}, DType::f32);
  const Program program = program_for(one.schedules[0], one, "s.json");
  const size_t ops = program.ops.size();
  ProcessShare all;
  run_processes(2, [&](Processes& process) {
    const int rank = process.index();
    ProcessShare share;
    share.losses = {rank + 0.1, 0};
    share.step_times_s = {rank == 0 ? 3.0 : 2.0, rank == 0 ? 1.0 : 4.0};
    share.step_s = share.step_times_s.back();
    share.times.resize(ops);
    share.known.assign(ops, false);
    for (OpId op = 0; op < ops; ++op) {
      const bool own = program.stream_of(op).rank == rank;
      if (!own && program.ops[op].kind != OpKind::transfer) continue;
      share.known[op] = true;
      share.times[op] = {own ? op + 0.25 : 1000, own ? op + 0.5 : 2000};
    }
    share.uses = {{.world_rank = rank,
                   .peak_bytes = {{"saved", 10U + rank}},
                   .peak_total = 20U + rank,
                   .traffic = {},
                   .scratch_bytes = 30U + rank,
                   .share_in_graphs = 0.5}};
    ProcessShare found = share_of_all(process, program, {.pp = 2}, std::move(share));
    if (process.is_root()) all = std::move(found);
  });
  EXPECT_THAT(all.losses, ElementsAre(0.1 + 1.1, 0));
  EXPECT_THAT(all.step_times_s, ElementsAre(3, 4));
  EXPECT_EQ(all.step_s, 4);
  ASSERT_EQ(all.times.size(), ops);
  for (OpId op = 0; op < ops; ++op) {
    EXPECT_TRUE(all.known[op]);
    EXPECT_EQ(all.times[op].start, op + 0.25);
    EXPECT_EQ(all.times[op].end, op + 0.5);
  }
  ASSERT_EQ(all.uses.size(), 2U);
  for (const int rank : {0, 1}) {
    EXPECT_EQ(all.uses[rank].world_rank, rank);
    EXPECT_EQ(all.uses[rank].peak_bytes.at("saved"), 10U + rank);
    EXPECT_EQ(all.uses[rank].peak_total, 20U + rank);
    EXPECT_EQ(all.uses[rank].scratch_bytes, 30U + rank);
    EXPECT_EQ(all.uses[rank].share_in_graphs, 0.5);
  }
}

TEST(NcclRun, OfSeveralProcessesIsOneRecordThatEqualsOneProcess) {
  uint32_t seed = 1;
  std::vector<RankGrid> grids{{.tp = 2, .pp = 2}, {.dp = 2, .pp = 2}};
  if (kStride > 1) grids.resize(1);
  for (const RankGrid& grid : grids) {
    SCOPED_TRACE("dp " + std::to_string(grid.dp));
    fake_cuda::reset(seed++);
    FakeNccl nccl;
    const Experiment one = experiment(grid, DType::f32);
    const Outcome outcome = run_of_processes(one, grid.size());
    ASSERT_THAT(outcome.failures, Each(""));
    for (int rank = 1; rank < grid.size(); ++rank) EXPECT_FALSE(outcome.runs[rank].has_value());
    const MeasuredRun& found = outcome.runs[0].value();
    EXPECT_THAT(nccl.problems(), IsEmpty());

    fake_cuda::reset(seed++);
    const MeasuredRun expected = run_of_one_process(one);
    const Measured& measured = *found.result.measured;
    EXPECT_EQ(measured.processes, grid.size());
    EXPECT_EQ(expected.result.measured->processes, 1);
    ASSERT_EQ(measured.losses.size(), expected.result.measured->losses.size());
    for (size_t step = 0; step < measured.losses.size(); ++step)
      EXPECT_NEAR(measured.losses[step], expected.result.measured->losses[step], 1e-5);
    EXPECT_LE(measured.parity->loss, 1e-5);
    EXPECT_LE(measured.parity->gradient, 1e-5);
    EXPECT_EQ(found.result.step_times_s.size(), size_t{kSteps});
    expect_whole_timeline(found);

    const auto ranks = to_json(found.result).at("ranks"), of_one = to_json(expected.result).at("ranks");
    ASSERT_EQ(ranks.size(), of_one.size());
    for (size_t rank = 0; rank < ranks.size(); ++rank)
      EXPECT_EQ(ranks[rank].at("memory_bytes"), of_one[rank].at("memory_bytes"));
    ASSERT_EQ(found.uses.size(), expected.uses.size());
    for (size_t rank = 0; rank < found.uses.size(); ++rank) {
      EXPECT_EQ(found.uses[rank].world_rank, static_cast<int>(rank));
      EXPECT_EQ(found.uses[rank].peak_bytes, expected.uses[rank].peak_bytes);
    }
  }
}

TEST(NcclRun, GroupsUseNcclAsTheFlagSays) {
  fake_cuda::reset(9);
  FakeNccl nccl;
  const Outcome outcome =
      run_of_processes(experiment({.pp = 2}, DType::f32), 2, [](int, int) {}, {"p2p:max_ctas=3"});
  ASSERT_THAT(outcome.failures, Each(""));
  std::vector<int> most;
  for (const ncclConfig_t& config : nccl.configs(0)) most.push_back(config.maxCTAs);
  EXPECT_EQ(std::count(most.begin(), most.end(), 3), 2) << "a link in each direction";
  EXPECT_GT(most.size(), 2U) << "and the group of the whole model, which was left alone";
}

TEST(OneProcess, TheRecordSaysHowKernelsWereGivenAndTimed) {
  fake_cuda::reset(10);
  Experiment alone = experiment({}, DType::f32);
  alone.layers_per_chunk = {2, 2};
  const MeasuredRun usual = run_of_one_process(alone);
  EXPECT_GT(usual.result.measured->scratch_bytes, 0);
  EXPECT_FALSE(usual.result.measured->share_in_graphs.has_value());
  EXPECT_FALSE(usual.result.measured->kernel_time_s.has_value());
  DeviceOptions options;
  options.graphs = true;
  options.time_kernels = true;
  const MeasuredRun found = run_of_one_process(alone, options);
  EXPECT_EQ(found.result.measured->losses, usual.result.measured->losses);
  EXPECT_GT(found.result.measured->share_in_graphs.value(), 0);
  EXPECT_LT(found.result.measured->share_in_graphs.value(), 1);
  EXPECT_GT(found.result.measured->kernel_time_s.value(), 0);
}

TEST(OneProcess, GemmsAreChosenForTheMultiprocessorsOfTheFlag) {
  fake_cuda::reset(12);
  Experiment alone = experiment({}, DType::f32);
  alone.layers_per_chunk = {2, 2};
  for (const int multiprocessors : {0, 100}) {
    fake_cublas_lt::state() = {};
    run_of_one_process(alone, {{.gemm = {.multiprocessors = multiprocessors}}});
    const auto& questions = fake_cublas_lt::state().questions;
    EXPECT_THAT(questions, Not(IsEmpty()));
    for (const auto& question : questions) EXPECT_EQ(question.multiprocessors, multiprocessors);
  }
}

// For each op whose GEMM there is no kernel for: nothing has run.
TEST(OneProcess, AShapeThatCublasLtHasNoKernelForIsNamedBeforeTheFirstStep) {
  fake_cuda::reset(12);
  Experiment alone = experiment({}, DType::bf16);
  alone.layers_per_chunk = {2, 2};
  const int vocabulary = alone.run->model.vocab;
  for (const bool gradient : {false, true}) {
    fake_cublas_lt::state() = {};
    fake_cublas_lt::state().refuses = [&](int64_t m, int64_t n, int64_t) {
      return gradient ? m == vocabulary : n == vocabulary;
    };
    EXPECT_THAT(refusal([&] { run_of_one_process(alone); }),
                AllOf(HasSubstr("model: cuBLASLt has no algorithm for the GEMM "),
                      HasSubstr(gradient ? "bf16 to f32, of head.W" : "bf16 to bf16, of head.F"),
                      HasSubstr("or --backend cpu")));
    EXPECT_THAT(fake_cublas_lt::state().gemms, IsEmpty());
  }
  fake_cublas_lt::state() = {};
}

// The stand-in shows one GPU, as `srun --gpus-per-task=1` does.
TEST(NcclRun, AProcessThatSeesItsOwnGpuAloneIsNotRefusedForItsNumber) {
  fake_cuda::reset(14);
  for (const int index_on_node : {0, 1, 7}) EXPECT_NO_THROW(built_in("cuda").check(index_on_node));
}

// In bf16 process 0 trains one rank beside it, while the others wait.
TEST(NcclRun, InBf16IsHeldAgainstOneRank) {
  fake_cuda::reset(11);
  const FakeNccl nccl;
  const Outcome outcome = run_of_processes(experiment({.tp = 2, .pp = 2}, DType::bf16), 4);
  ASSERT_THAT(outcome.failures, Each(""));
  const Parity parity = outcome.runs[0]->result.measured->parity.value();
  EXPECT_GT(parity.gradient, 1e-4);  // it is bf16
  EXPECT_LE(parity.gradient, 2 * parity.one_rank_gradient.value());
}

// In the midst of a step of the others, or when all they lack is its share.
TEST(NcclRun, AProcessThatDiesEndsAll) {
  for (const int last_step : {1, 1 + kSteps}) {
    fake_cuda::reset(13);
    FakeNccl nccl;
    const Outcome outcome =
        run_of_processes(experiment({.tp = 2, .pp = 2}, DType::f32), 4, [&](int process, int step) {
          if (process == 3 && step == last_step) throw std::runtime_error("the disk is full");
        });
    EXPECT_EQ(outcome.failures[3], "the disk is full");
    if (last_step == 1) {
      EXPECT_THAT(outcome.failures, Each(Ne("")));
      EXPECT_EQ(nccl.count("ncclCommAbort"), nccl.count("ncclCommInitRankConfig"));
    }
    EXPECT_FALSE(outcome.runs[0].has_value());
    EXPECT_THAT(outcome.failures[0], Ne(""));
  }
}

TEST(NcclRun, AWorldOfAnotherSizeIsRefusedByAll) {
  fake_cuda::reset(19);
  const FakeNccl nccl;
  const Outcome outcome = run_of_processes(experiment({.tp = 2, .pp = 2}, DType::f32), 2);
  EXPECT_THAT(outcome.failures, Each(HasSubstr("has 4 ranks, but the launcher started 2 processes")));
}

}  // namespace
}  // namespace stp
