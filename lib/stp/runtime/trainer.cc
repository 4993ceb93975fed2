#include "stp/runtime/trainer.h"

#include <algorithm>
#include <exception>
#include <thread>

#include "stp/base/error.h"
#include "stp/runtime/matrix_shard.h"
#include "stp/runtime/rank_executor.h"

namespace stp {

struct Trainer::State {
  Backend& backend;
  Training training;
  ExecutionPlan plan;
  std::vector<std::unique_ptr<RankExecutor>> ranks;
  int steps = 0;

  // Runs `work` for every rank, each on a thread of its own, since a rank's host may wait for others. The
  // first failure ends the run.
  template <typename Work>
  void on_every_rank(Work work) {
    std::vector<std::thread> hosts;
    const std::vector<int> world_ranks = backend.ranks();
    for (size_t i = 0; i < world_ranks.size(); ++i) {
      hosts.emplace_back([&, i] {
        try {
          work(i, world_ranks[i]);
        } catch (const Stopped&) {  // the cause is in the guard
        } catch (const std::exception& error) {
          backend.guard().fail("rank " + std::to_string(world_ranks[i]) + ": " + error.what());
        }
      });
    }
    for (std::thread& host : hosts) host.join();
    if (backend.guard().failed()) throw std::runtime_error(backend.guard().failure());
  }

  std::map<std::string, std::vector<double>> gather(const std::string& name, Tensor ParameterState::*which) {
    std::map<std::string, std::vector<double>> whole;
    std::string shards;
    const bool several = backend.processes() > 1;
    for (const auto& rank : ranks) {
      if (rank->place().dp != 0) continue;
      for (ChunkState& chunk : rank->chunks()) {
        for (ParameterState* state : chunk.all()) {
          const std::vector<double> values = download_doubles(rank->device(), rank->compute(), state->*which);
          for_each_block(state->parameter, training.grid.tp, rank->place().tp,
                         [&](const ParameterPart& part, int64_t first_row, int64_t rows, int64_t first_column,
                             int64_t columns, int64_t offset) {
                           const MatrixShard shard{parameter_name(part, state->layer),
                                                   part.rows,
                                                   part.columns,
                                                   first_row,
                                                   rows,
                                                   first_column,
                                                   columns,
                                                   std::span(values).subspan(offset, rows * columns)};
                           if (several)
                             append(shards, shard);
                           else
                             add(whole, shard);
                         });
        }
      }
    }
    if (!several) return whole;
    for (const std::string& of_process : backend.gather(name, std::move(shards))) add_all(whole, of_process);
    return whole;
  }
};

Trainer::Trainer(Backend& backend, Program program, const Training& training) {
  const RankGrid& grid = training.grid;
  if (grid.cp != 1) throw InputError("", "parallel.cp", "context parallelism does not run yet", "use 1");
  if (grid.pp != program.schedule.pp())
    throw InputError(
        "", "parallel.pp",
        std::to_string(grid.pp) + " ranks, but the schedule has " + std::to_string(program.schedule.pp()),
        "make them agree");
  if (grid.size() != backend.world_size())
    throw InputError(
        "", "parallel",
        std::to_string(grid.size()) + " ranks, but the backend has " + std::to_string(backend.world_size()),
        "start as many");
  state_ = std::make_unique<State>(State{backend, training, make_plan(std::move(program)), {}});
  // World rank and op number to words.
  backend.describe_with([state = state_.get()](int rank, uint32_t op) {
    static_cast<void>(rank);
    return op < state->plan.program.ops.size() ? describe_op(state->plan.program, op) : std::string("set-up");
  });
  state_->ranks.resize(backend.ranks().size());
  state_->on_every_rank([&](size_t i, int world_rank) {
    state_->ranks[i] = std::make_unique<RankExecutor>(backend, state_->plan, state_->training, world_rank);
    state_->ranks[i]->device().synchronize();
  });
}

Trainer::~Trainer() = default;

StepResult Trainer::step(const std::vector<TokenSample>& samples) {
  const size_t per_replica =
      static_cast<size_t>(state_->plan.program.schedule.microbatches) * state_->training.microbatch_size;
  if (samples.size() != per_replica * state_->training.grid.dp)
    throw std::logic_error("a step of " + std::to_string(per_replica * state_->training.grid.dp) +
                           " samples was given " + std::to_string(samples.size()));
  const int step = ++state_->steps;
  state_->on_every_rank([&](size_t i, int) {
    RankExecutor& rank = *state_->ranks[i];
    rank.issue_step(std::span(samples).subspan(rank.place().dp * per_replica, per_replica), step);
    rank.finish_step();
  });

  StepResult result;
  const Program& program = state_->plan.program;
  if (state_->training.record_times) {
    result.times.resize(program.ops.size());
    result.known.resize(program.ops.size(), false);
  }
  const auto note = [&](OpId op, const OpTime& time) {
    result.times[op] = time;
    result.known[op] = true;
  };
  std::map<int, const RankExecutor*> stands_for;  // by pipeline rank: the first rank of this process
  double first = 0, last = 0;
  bool any = false;
  if (const auto common = state_->ranks[0]->common_start()) {
    first = last = *common;
    any = true;
  }
  for (const auto& rank : state_->ranks) {
    const RankGrid::Place& place = rank->place();
    if (place.tp == 0) result.loss += rank->loss();  // each replica's factor is 1 / dp already
    if (!state_->training.record_times) continue;
    const std::vector<OpTime> times = rank->op_times();
    const bool stands = stands_for.try_emplace(place.pp, rank.get()).first->second == rank.get();
    for (size_t op = 0; op < times.size(); ++op) {
      if (!any || times[op].start < first) first = times[op].start;
      last = any ? std::max(last, times[op].end) : times[op].end;
      any = true;
      if (stands) note(static_cast<OpId>(program.rank_begin[place.pp] + op), times[op]);
    }
  }
  // What came from ranks of other processes.
  for (const auto& [pp, rank] : stands_for)
    for (const auto& [op, time] : rank->arrivals())
      if (stands_for.count(program.stream_of(op).rank) == 0) note(op, time);
  result.step_s = last - first;
  for (OpId op = 0; op < result.times.size(); ++op)
    if (OpTime& time = result.times[op]; result.known[op])  // the first may have been awaited before
      time = {std::max(0.0, time.start - first), std::max(0.0, time.end - first)};
  return result;
}

std::map<std::string, std::vector<double>> Trainer::gradients() {
  return state_->gather("gradients", &ParameterState::gradient);
}

std::map<std::string, std::vector<double>> Trainer::weights() {
  return state_->gather("weights", &ParameterState::weight);
}

std::map<std::string, std::vector<double>> Trainer::masters() {
  return state_->gather("masters", &ParameterState::master);
}

std::vector<RankUse> Trainer::use() {
  std::vector<RankUse> uses;
  const std::vector<int> world_ranks = state_->backend.ranks();
  for (size_t i = 0; i < world_ranks.size(); ++i) {
    RankUse use;
    use.world_rank = world_ranks[i];
    const MemoryLedger& memory = state_->ranks[i]->device().memory();
    for (int kind = 0; kind < kMemoryKinds; ++kind)
      use.peak_bytes[to_string(static_cast<MemoryKind>(kind))] = memory.peak(static_cast<MemoryKind>(kind));
    use.peak_total = memory.peak();
    use.all_reduce_bytes = state_->ranks[i]->all_reduce_bytes();
    use.sent_bytes = state_->ranks[i]->sent_bytes();
    use.scratch_bytes = memory.scratch();
    use.share_in_graphs = state_->ranks[i]->device().share_in_graphs();
    uses.push_back(use);
  }
  return uses;
}

std::map<std::string, PacedUse> Trainer::take_paced_use() {
  std::map<std::string, PacedUse> uses;
  for (const auto& rank : state_->ranks)
    for (const auto& [kind, use] : rank->take_paced_use()) uses[kind] += use;
  return uses;
}

bool Trainer::time_kernels(bool on) {
  bool can = true;
  for (const auto& rank : state_->ranks) can = rank->device().time_kernels(on) && can;
  return can;
}

double Trainer::take_kernel_seconds() {
  double most = 0;
  for (const auto& rank : state_->ranks) most = std::max(most, rank->device().take_kernel_seconds());
  return most;
}

const Program& Trainer::program() const { return state_->plan.program; }

}  // namespace stp
