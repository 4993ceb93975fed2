// The backend `emulated`: the executor's ops, each once and for its time, no sooner than the simulator says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <mutex>
#include <set>

#include "stp/cost/cost_table.h"
#include "stp/emulated/emulated_backend.h"
#include "stp/simulate/simulate.h"
#include "support/effort.h"
#include "support/refusal.h"
#include "support/training.h"

namespace stp {
namespace {

using namespace testing_support;

GridTraining tiny(const RankGrid& grid, const Variant& variant = {}) {
  auto training = small_training(2 * grid.pp, DType::f32, grid);
  divide_samples(training, variant);
  return training;
}

/// One step on emulated devices with these hooks.
StepResult emulate(const GridTraining& training, const Program& program, OpHooks hooks) {
  const auto backend =
      emulated::make_backend({.world_size = training.grid.size(), .hooks = std::move(hooks)});
  Trainer trainer(*backend, program, training);
  const StepResult step = trainer.step(samples_for(program, training));
  if (!program.strategy.post_validation) expect_nothing_left(*backend);  // else the norm, for the next step
  return step;
}

// Every rank starts each of its ops once, those of a stream in their order. No optimizer starts, and counts
// as compute, while it waits for the norm of other ranks' gradients.
TEST(Emulated, EveryRankStartsEachOfItsOpsOnceInItsStreamsOrder) {
  std::vector<Variant> variants{{},
                                {.sequence_parallel = true, .recompute = {.layer = true}},
                                {.halves = true},
                                {.context_parallel = 2},
                                {.offload = 1},
                                {.post_validation = true}};
  for (const Variant& variant : variants) {
    SCOPED_TRACE(to_string(variant));
    const RankGrid grid{.tp = 2, .cp = variant.context_parallel, .dp = 2, .pp = 2};
    const GridTraining training = tiny(grid, variant);
    const Program program = program_of("stp", grid, 4, 4, variant);
    std::mutex mutex;
    std::map<int, std::vector<OpId>> started;  // by world rank
    bool any_optimizer = false;
    emulate(training, program,
            {.start =
                 [&](RunGuard&, int rank, uint32_t op) {
                   const std::lock_guard lock(mutex);
                   const bool optimizer = program.ops[op].kind == OpKind::optimizer;
                   any_optimizer |= optimizer;
                   EXPECT_TRUE(optimizer || !any_optimizer || variant.post_validation)
                       << describe(program, op);
                   started[rank].push_back(op);
                 },
             .takes = [](int, uint32_t) { return 1e-4; }});
    ASSERT_EQ(started.size(), static_cast<size_t>(grid.size()));
    for (const auto& [rank, ops] : started) {
      const int pp = grid.place(rank).pp;
      EXPECT_EQ(std::set<OpId>(ops.begin(), ops.end()).size(), ops.size());
      EXPECT_EQ(ops.size(), program.rank_begin[pp + 1] - program.rank_begin[pp]);
      std::map<uint32_t, OpId> latest;  // by stream; ops are numbered in the order of issue
      for (const OpId op : ops) {
        const auto [at, first] = latest.try_emplace(program.on_stream[op], op);
        if (!first && program.ops[op].kind != OpKind::norm_total) {
          EXPECT_LT(at->second, op);
        }
        at->second = op;
      }
    }
  }
}

// Sleeps never end early: a step is shorter than the simulator's only where the executor misses an op or a
// wait.
TEST(Emulated, NoStepIsShorterThanTheSimulators) {
  CostTable table;
  for (const Unit unit : {Unit::attn, Unit::mlp})
    for (const UnitPass pass : {UnitPass::F, UnitPass::I, UnitPass::W_late}) table.at(unit, pass) = 1e-3;
  table.at(Unit::head, UnitPass::F) = 2e-3;
  table.all_reduce = 5e-4;
  table.transfer_between_nodes = table.transfer_within_node = table.transfer_beside_another = 3e-4;
  for (const char* schedule : {"1f1b", "1f1b-i", "zb-v", "dualpipev", "stp"})
    for (int pp = 2; pp <= kMostRanks / 4; pp *= 2)
      for (const Release release : {Release::chain, Release::released}) {
        SCOPED_TRACE(std::string(schedule) + ", p " + std::to_string(pp));
        const RankGrid grid{.tp = 2, .pp = pp};
        const Program program = program_of(schedule, grid, 2 * pp, 2 * pp, {.release = release});
        const std::vector<double> seconds = op_seconds(program, table);
        const Timeline simulated = simulate(program, seconds, {});
        const StepResult step =
            emulate(tiny(grid), program, {.takes = [&](int, uint32_t op) { return seconds[op]; }});
        EXPECT_GE(step.step_s, simulated.step_s);
        for (OpId op = 0; op < seconds.size(); ++op)
          EXPECT_GE(step.times[op].end - step.times[op].start, seconds[op]) << describe(program, op);
      }
}

TEST(Emulated, TensorsTakeNoMemoryAndHoldZeros) {
  const auto backend = emulated::make_backend({.world_size = 1});
  Device& device = backend->device(0);
  const auto stream = device.make_stream("compute", StreamPriority::compute);
  Tensor large = device.allocate(*stream, MemoryKind::weights, DType::f32, int64_t{1} << 30, 1 << 10);
  const Tensor other = device.allocate(*stream, MemoryKind::weights, DType::f32, 1, 1);
  EXPECT_EQ(address(other) - address(large), (int64_t{1} << 42) + 64);
  std::array<std::byte, 4> bytes{std::byte{1}};
  device.download(*stream, large, bytes);
  EXPECT_THAT(bytes, testing::Each(std::byte{0}));
  device.release(*stream, large);
  EXPECT_EQ(device.memory().held(), sizeof(float));
}

TEST(Emulated, AFailureEndsSleepsAtOnce) {
  const RankGrid grid{.dp = 2};
  const GridTraining training = tiny(grid);
  const Program program = program_of("1f1b", grid, 2, 2);
  const OpHooks hooks{.takes = [](int rank, uint32_t) -> double {
    if (rank == 1) throw std::runtime_error("no luck");
    return 1e6;
  }};
  EXPECT_THAT(error_of<std::runtime_error>([&] { emulate(training, program, hooks); }),
              testing::MatchesRegex("rank 1, .*: no luck"));
}

}  // namespace
}  // namespace stp
