#include "stp/runtime/trainer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <exception>
#include <stdexcept>

#include "stp/base/error.h"
#include "stp/runtime/executor.h"
#include "stp/runtime/matrix_shard.h"

namespace stp {
namespace {

Tensor BucketState::*tensor_of(Trained which) {
  static constexpr std::array members{&BucketState::weights, &BucketState::master, &BucketState::first_moment,
                                      &BucketState::second_moment};
  return members[static_cast<size_t>(which)];
}

}  // namespace

struct Trainer::State {
  Backend& backend;
  const Training training;
  const ExecutionPlan plan;
  std::unique_ptr<Executor> executor;

  State(Backend& to, Training of, Program program)
      : backend(to), training(std::move(of)), plan(make_plan(std::move(program))) {
    // World rank and op number to words.
    backend.describe_with([this](int, uint32_t op) {
      return op < plan.program.ops.size() ? describe_op(plan.program, op) : std::string("set-up");
    });
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    executor.reset();
    backend.describe_with({});
  }

  // A failure while work is issued ends the run.
  template <typename Work>
  void run(Work work) {
    try {
      work();
    } catch (const Cancelled&) {  // the cause is in the guard
    } catch (const NotFinite&) {
      throw;
    } catch (const InputError& error) {
      backend.guard().fail(error.what());
      throw;
    } catch (const std::exception& error) {
      backend.guard().fail(error.what());
    }
    if (backend.guard().failed()) throw std::runtime_error(backend.guard().failure());
  }

  Matrices gather(Tensor BucketState::*which) {
    Matrices whole;
    run([&] {
      std::string bytes;  // for process 0
      Processes& processes = backend.processes();
      // The other processes may wait for this one's work, but this one not for ever for their bytes.
      executor->visit_whole(which, [&](const RankState& rank, ChunkState& chunk, int bucket,
                                       const Tensor& elements) {
        const std::vector<double> values = download_doubles(rank.device, *rank.compute, elements);
        const RunGuard::Work work(backend.guard());
        for (const ParameterState* state : chunk.all())
          if (state->bucket == bucket)
            for_each_block(*state, [&](const MatrixShard& shard, int64_t offset) {
              const auto own =
                  std::as_bytes(std::span(values).subspan(state->begin + offset, shard.rows * shard.columns));
              if (processes.is_root())
                add(whole, shard, own);
              else
                append(bytes, shard, own);
            });
      });
      const std::vector<std::string> texts = processes.gather(std::move(bytes));
      const RunGuard::Work work(backend.guard());
      for (const std::string& text : texts) add_all(whole, text);
    });
    return whole;
  }
};

Trainer::Trainer(Backend& backend, Program program, const Training& training) {
  const Strategy& strategy = program.strategy;
  const Placement& placement = program.schedule.placement;
  if (strategy.pp != program.schedule.pp())
    throw std::logic_error("the strategy has other pipeline ranks than the schedule");
  if (training.model.tied() && placement.rank_of(0) != placement.rank_of(placement.stages() - 1) &&
      std::ranges::find(program.ops, OpKind::embedding_reduce, &Op::kind) == program.ops.end())
    throw std::logic_error("the program does not sum the tied head's gradient");
  if (training.model.tied() && strategy.post_validation)
    throw InputError("", "post_validation", "delays the sum of a tied head's gradient",
                     "use a model with an untied head, or remove it");
  check_divisible(training.model, strategy, training.seq, training.vision_tokens);
  check_shared_vocabulary(training.model, strategy.tp, program.vocabulary_ranks());
  if (program.vision_layers != training.model.vision.layers)
    throw InputError("", "model",
                     "has " + std::to_string(training.model.vision.layers) +
                         " layers of a vision encoder, but the program is for " +
                         std::to_string(program.vision_layers),
                     "make them agree");
  if (strategy.world_size() != backend.world_size())
    throw InputError("", "parallel",
                     std::to_string(strategy.world_size()) + " ranks, but the backend has " +
                         std::to_string(backend.world_size()),
                     "start as many");
  state_ = std::make_unique<State>(backend, training, std::move(program));
  state_->run(
      [&] { state_->executor = std::make_unique<Executor>(backend, state_->plan, state_->training); });
}

Trainer::~Trainer() = default;

StepResult Trainer::step(const std::vector<TokenSample>& samples) {
  const Program& program = state_->plan.program;
  const size_t expected = static_cast<size_t>(program.schedule.all_microbatches()) *
                          state_->training.microbatch_size * program.strategy.dp;
  if (samples.size() != expected)
    throw std::logic_error("a step of " + std::to_string(expected) + " samples was given " +
                           std::to_string(samples.size()));
  Executor& executor = *state_->executor;
  state_->run([&] {
    executor.issue_step(samples);
    executor.finish_step();
  });

  StepResult result;
  for (const auto& rank : executor.ranks())
    if (rank->place.tp == 0) result.loss += rank->loss_value;  // each rank's factor is of all tokens already
  if (state_->training.record_times) note_times(result);
  return result;
}

void Trainer::note_times(StepResult& result) const {
  const Program& program = state_->plan.program;
  const Executor& executor = *state_->executor;
  result.times.resize(program.ops.size());
  result.known.resize(program.ops.size(), false);
  if (executor.ranks().empty()) return;  // there are more processes than ranks
  const auto note = [&](OpId op, const OpTime& time) {
    result.times[op] = time;
    result.known[op] = true;
  };
  std::map<int, const RankState*> stands_for;  // by pipeline rank: the first rank of this process
  double first = HUGE_VAL, last = -HUGE_VAL;
  for (const auto& rank : executor.ranks()) {
    const std::vector<OpTime> times = executor.op_times(*rank);
    const int pp = rank->place.pp;
    const bool stands = stands_for.try_emplace(pp, rank.get()).second;
    for (size_t op = 0; op < times.size(); ++op) {
      first = std::min(first, times[op].start);
      last = std::max(last, times[op].end);
      if (stands) note(static_cast<OpId>(program.rank_begin[pp] + op), times[op]);
    }
  }
  if (const auto common = executor.common_start()) first = *common;
  // Adds transfers from ranks of other processes.
  for (const auto& [pp, rank] : stands_for)
    for (const auto& [op, events] : rank->arrivals)
      if (!stands_for.contains(program.stream_of(op).rank))
        note(op, {events.started->seconds(), events.done->seconds()});
  result.step_s = last - first;
  for (OpId op = 0; op < result.times.size(); ++op)
    if (OpTime& time = result.times[op]; result.known[op])  // the first may have been awaited before
      time = {std::max(0.0, time.start - first), std::max(0.0, time.end - first)};
}

Matrices Trainer::gradients() { return state_->gather(&BucketState::gradients); }

void Trainer::finish() {
  state_->run([&] { state_->executor->settle(); });
}

Matrices Trainer::trained(Trained which) {
  finish();
  return state_->gather(tensor_of(which));
}

void Trainer::restore(Trained which, const ReadShard& read) {
  RunGuard& guard = state_->backend.guard();
  const auto restore_state = [&](RankState& rank, const ChunkState& chunk, const ParameterState& state) {
    std::vector<double> values(static_cast<size_t>(state.weight.elements()));
    for_each_block(state, [&](MatrixShard shard, int64_t offset) {
      const RunGuard::Work work(guard);  // other processes may read faster
      shard.values.resize(static_cast<size_t>(shard.rows * shard.columns));
      read(shard);
      std::ranges::copy(shard.values, values.begin() + offset);
    });
    if (which == Trained::weights) upload_doubles(rank.device, *rank.compute, state.weight, values);
    const BucketState& bucket = chunk.buckets[state.bucket];
    const Trained shared = which == Trained::weights ? Trained::masters : which;
    upload_share(rank.device, *rank.compute, bucket, bucket.*tensor_of(shared), state, values);
  };
  state_->run([&] {
    for (const auto& rank : state_->executor->ranks()) {
      for (ChunkState& chunk : rank->chunks)
        for (const ParameterState* state : chunk.all()) restore_state(*rank, chunk, *state);
      rank->device.synchronize();
    }
  });
}

void Trainer::restore_updates(int updates) { state_->executor->restore_updates(updates); }

std::vector<RankUse> Trainer::use() {
  std::vector<RankUse> uses;
  for (const auto& rank : state_->executor->ranks()) {
    RankUse use;
    use.world_rank = rank->world_rank;
    const MemoryTracker& memory = rank->device.memory();
    for (int kind = 0; kind < kMemoryKinds; ++kind)
      use.peak_bytes[to_string(static_cast<MemoryKind>(kind))] = memory.peak(static_cast<MemoryKind>(kind));
    use.peak_total = memory.peak();
    use.traffic = state_->executor->traffic(*rank);
    use.scratch_bytes = memory.scratch();
    use.share_in_graphs = rank->device.share_in_graphs();
    uses.push_back(use);
  }
  return uses;
}

std::map<std::string, EmulatedUse> Trainer::take_emulated_use() {
  return state_->executor->take_emulated_use();
}

bool Trainer::time_kernels(bool on) {
  bool can = true;
  for (const auto& rank : state_->executor->ranks()) can = rank->device.time_kernels(on) && can;
  return can;
}

double Trainer::take_kernel_seconds() {
  double most = 0;
  for (const auto& rank : state_->executor->ranks())
    most = std::max(most, rank->device.take_kernel_seconds());
  return most;
}

const Program& Trainer::program() const { return state_->plan.program; }

DType Trainer::type() const { return state_->training.type; }
RunGuard& Trainer::guard() { return state_->backend.guard(); }

}  // namespace stp
