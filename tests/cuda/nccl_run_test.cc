// What `stp run` does where a launcher started one process per GPU: the driver, the backends by name and
// NCCL's groups, on stand-ins for CUDA and NCCL. Processes are threads, as in nccl_training_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "process_share.h"
#include "run_measured.h"
#include "run_simulated.h"
#include "stp/backends/backends.h"
#include "stp/cuda/gpu_facts.h"
#include "stp/cuda/nccl_api.h"
#include "support/effort.h"
#include "support/fake_cuda.h"
#include "support/nccl_exchange.h"

namespace stp {
namespace testing_support {

thread_local std::optional<NcclApi> nccl_of_this_process;

}  // namespace testing_support

// In the library's place.
cuda::NcclApi cuda::loaded_nccl() { return testing_support::nccl_of_this_process.value(); }
nlohmann::json cuda::gpu_facts(int) { return {}; }

namespace {

using namespace testing_support;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr int kSteps = kStride > 1 ? 1 : 2;  // and one before them

Experiment experiment(RankGrid grid, DType type) {
  Experiment made;
  made.schedules = {{"stp", "", 0}};
  made.tp = grid.tp;
  made.pp = grid.pp;
  made.dp = grid.dp;
  made.microbatches = 2;
  made.microbatch_size = kStride > 1 ? 1 : 2;
  made.layers_per_chunk = {1, 1, 1, 1};
  made.as_run = {{"release", "chain"}, {"backward", "suite"}, {"braid", "static"}, {"freed_at", "W"}};
  Experiment::Run run{};
  run.model.name = "small";
  run.model.layers = 4;
  run.model.hidden = 16;
  run.model.ffn = 24;
  run.model.q_heads = 8;
  run.model.kv_heads = 4;
  run.model.head_dim = 4;
  run.model.vocab = 20;
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
  std::optional<MeasuredRun> run;
  std::string failure;
};

// By process; `stepped` is called there after every step.
std::vector<Outcome> run_processes(
    const Experiment& experiment, int processes, NcclOnHost& world,
    const std::function<void(int rank, int step)>& stepped = [](int, int) {},
    const std::vector<std::string>& nccl = {}) {
  Listener listener("127.0.0.1", 0);
  const uint16_t port = listener.port();
  std::vector<Outcome> outcomes(processes);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < processes; ++rank) {
    threads.emplace_back([&, rank] {
      std::optional<Listener> own;
      if (rank == 0) own = std::move(listener);
      nccl_of_this_process = world.nccl.api(rank);
      RunGuard guard{std::chrono::duration<double>(60)};
      Outcome& outcome = outcomes[rank];
      try {
        Rendezvous rendezvous({.rank = rank, .world_size = processes, .port = port}, guard, {},
                              std::move(own));
        DeviceOptions options;
        options.backend = "cuda";
        options.processes = &rendezvous;
        options.nccl = nccl;
        int step = 0;
        outcome.run = run_measured(experiment.schedules[0], experiment, "s.json", options, nullptr,
                                   [&] { stepped(rank, ++step); });
        rendezvous.end();
      } catch (const Cancelled&) {
        outcome.failure = guard.failure();
      } catch (const std::exception& error) {
        outcome.failure = error.what();
      }
      nccl_of_this_process.reset();
    });
  }
  for (std::thread& thread : threads) thread.join();
  return outcomes;
}

std::vector<std::string> failures(const std::vector<Outcome>& outcomes) {
  std::vector<std::string> all;
  for (const Outcome& outcome : outcomes) all.push_back(outcome.failure);
  return all;
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

// One of two processes: what each gives is what `given` holds of it.
class TwoProcesses : public Backend {
 public:
  TwoProcesses(int process, std::vector<std::string>& given) : process_(process), given_(given) {}
  [[nodiscard]] std::string name() const override { return "two"; }
  [[nodiscard]] int world_size() const override { return 2; }
  [[nodiscard]] std::vector<int> ranks() const override { return {process_}; }
  Device& device(int) override { throw std::logic_error("no device"); }
  std::unique_ptr<Communicator> communicator(const std::string&, const std::vector<int>&, int,
                                             GroupUse) override {
    return nullptr;
  }
  RunGuard& guard() override { throw std::logic_error("no guard"); }
  void describe_with(DescribeOp) override {}
  [[nodiscard]] int process() const override { return process_; }
  [[nodiscard]] int processes() const override { return 2; }
  std::vector<std::string> gather(const std::string&, std::string text) override {
    given_[process_] = std::move(text);
    return process_ == 0 ? given_ : std::vector<std::string>();
  }

 private:
  const int process_;
  std::vector<std::string>& given_;
};

// Of two pipeline ranks each has the times of its own ops, and of what came to it from the other.
TEST(ProcessShare, IsPutTogetherWithTheSendersTimes) {
  const Experiment one = experiment({.tp = 1, .cp = 1, .dp = 1, .pp = 2}, DType::f32);
  const Program program = program_for(one.schedules[0], one, "s.json");
  const size_t ops = program.ops.size();
  std::vector<std::string> given(2);
  ProcessShare all;
  for (const int rank : {1, 0}) {
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
                   .all_reduce_bytes = 30 + rank,
                   .sent_bytes = 40 + rank}};
    TwoProcesses backend(rank, given);
    all = share_of_all(backend, program, {.tp = 1, .cp = 1, .dp = 1, .pp = 2}, std::move(share));
  }
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
    EXPECT_EQ(all.uses[rank].all_reduce_bytes, 30 + rank);
    EXPECT_EQ(all.uses[rank].sent_bytes, 40 + rank);
  }
}

TEST(NcclRun, OfSeveralProcessesIsOneRecordThatEqualsOneProcess) {
  uint32_t seed = 1;
  std::vector<RankGrid> grids{{.tp = 2, .cp = 1, .dp = 1, .pp = 2}, {.tp = 1, .cp = 1, .dp = 2, .pp = 2}};
  if (kStride > 1) grids.resize(1);
  for (const RankGrid& grid : grids) {
    SCOPED_TRACE("dp " + std::to_string(grid.dp));
    fake_cuda::reset(seed++);
    NcclOnHost world;
    const Experiment one = experiment(grid, DType::f32);
    const std::vector<Outcome> outcomes = run_processes(one, grid.size(), world);
    ASSERT_THAT(failures(outcomes), Each(""));
    for (int rank = 1; rank < grid.size(); ++rank) EXPECT_FALSE(outcomes[rank].run.has_value());
    const MeasuredRun& found = outcomes[0].run.value();
    EXPECT_THAT(world.nccl.problems(), IsEmpty());

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

    ASSERT_EQ(found.result.ranks.size(), expected.result.ranks.size());
    for (size_t rank = 0; rank < found.result.ranks.size(); ++rank) {
      const auto &memory = *found.result.ranks[rank].memory, &other = *expected.result.ranks[rank].memory;
      EXPECT_EQ(memory.activations, other.activations);
      EXPECT_EQ(memory.weights, other.weights);
      EXPECT_EQ(memory.gradients, other.gradients);
      EXPECT_EQ(memory.optimizer, other.optimizer);
    }
    ASSERT_EQ(found.uses.size(), expected.uses.size());
    for (size_t rank = 0; rank < found.uses.size(); ++rank) {
      EXPECT_EQ(found.uses[rank].world_rank, static_cast<int>(rank));
      EXPECT_EQ(found.uses[rank].all_reduce_bytes, expected.uses[rank].all_reduce_bytes);
      EXPECT_EQ(found.uses[rank].sent_bytes, expected.uses[rank].sent_bytes);
    }
  }
}

TEST(NcclRun, GroupsUseNcclAsTheFlagSays) {
  fake_cuda::reset(9);
  NcclOnHost world;
  const auto outcomes = run_processes(experiment({.tp = 1, .cp = 1, .dp = 1, .pp = 2}, DType::f32), 2, world,
                                      [](int, int) {}, {"p2p:max_ctas=3"});
  ASSERT_THAT(failures(outcomes), Each(""));
  std::vector<int> most;
  for (const ncclConfig_t& config : world.nccl.configs(0)) most.push_back(config.maxCTAs);
  EXPECT_EQ(std::count(most.begin(), most.end(), 3), 2) << "a link in each direction";
  EXPECT_GT(most.size(), 2U) << "and the group of the whole model, which was left alone";
}

TEST(OneProcess, TheRecordSaysHowKernelsWereGivenAndTimed) {
  fake_cuda::reset(10);
  Experiment alone = experiment({.tp = 1, .cp = 1, .dp = 1, .pp = 1}, DType::f32);
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

// In bf16 process 0 trains one rank beside it, while the others wait.
TEST(NcclRun, InBf16IsHeldAgainstOneRank) {
  fake_cuda::reset(11);
  NcclOnHost world;
  const auto outcomes =
      run_processes(experiment({.tp = 2, .cp = 1, .dp = 1, .pp = 2}, DType::bf16), 4, world);
  ASSERT_THAT(failures(outcomes), Each(""));
  const Parity parity = outcomes[0].run->result.measured->parity.value();
  EXPECT_GT(parity.gradient, 1e-4);  // it is bf16
  EXPECT_LE(parity.gradient, 2 * parity.one_rank_gradient.value());
}

TEST(NcclRun, AProcessThatDiesInTheMiddleEndsAllAndIsNamed) {
  for (const int victim : {0, 3}) {
    fake_cuda::reset(13);
    NcclOnHost world;
    const auto outcomes = run_processes(experiment({.tp = 2, .cp = 1, .dp = 1, .pp = 2}, DType::f32), 4,
                                        world, [&](int rank, int step) {
                                          if (rank == victim && step == 1)
                                            throw std::runtime_error("the disk is full");
                                        });
    for (int rank = 0; rank < 4; ++rank) {
      EXPECT_FALSE(outcomes[rank].run.has_value());
      EXPECT_THAT(
          outcomes[rank].failure,
          HasSubstr(rank == victim ? "the disk is full" : "rank " + std::to_string(victim) + " ended early"));
    }
  }
}

// After the last step: the others have given all they have, or wait for what is missing.
TEST(NcclRun, AProcessThatDiesBeforeItsShareIsNamed) {
  fake_cuda::reset(17);
  NcclOnHost world;
  const auto outcomes = run_processes(experiment({.tp = 2, .cp = 1, .dp = 1, .pp = 2}, DType::f32), 4, world,
                                      [&](int rank, int step) {
                                        if (rank == 2 && step == 1 + kSteps)
                                          throw std::runtime_error("no more power");
                                      });
  EXPECT_FALSE(outcomes[0].run.has_value());
  EXPECT_EQ(outcomes[2].failure, "no more power");
  EXPECT_THAT(outcomes[0].failure, HasSubstr("rank 2 ended early"));
}

TEST(NcclRun, AWorldOfAnotherSizeIsRefusedByAll) {
  fake_cuda::reset(19);
  NcclOnHost world;
  const auto outcomes = run_processes(experiment({.tp = 2, .cp = 1, .dp = 1, .pp = 2}, DType::f32), 2, world);
  EXPECT_THAT(failures(outcomes), Each(HasSubstr("has 4 ranks, but the launcher started 2 processes")));
}

}  // namespace
}  // namespace stp
