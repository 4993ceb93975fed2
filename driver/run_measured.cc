#include "run_measured.h"

#include <algorithm>
#include <chrono>
#include <fstream>
#include <iterator>
#include <map>
#include <numeric>

#include "parity.h"
#include "process_share.h"
#include "run_simulated.h"
#include "speed_probe.h"
#include "stp/backends/backends.h"
#include "stp/cpu/cpu_backend.h"
#include "stp/report/statistics.h"
#include "stp/runtime/call_times.h"
#include "stp/runtime/trainer.h"
#include "stp/schedule/validate.h"

namespace stp {
namespace {

// The same tokens for every schedule: step after step, random ones, or pieces of a text.
class Data {
 public:
  Data(const Experiment::Run& run, const std::string& file) : run_(run), state_(run.initialisation.seed) {
    if (run.text.empty()) return;
    std::ifstream in(run.text, std::ios::binary);
    text_.assign(std::istreambuf_iterator<char>(in), {});
    if (text_.size() < static_cast<size_t>(run.seq) + 2)
      throw InputError(
          file, "run.text",
          run.text + " cannot be read, or has fewer than " + std::to_string(run.seq + 2) + " bytes",
          "name a longer text");
  }

  std::vector<TokenSample> next(int count) {
    std::vector<TokenSample> samples(count);
    for (TokenSample& sample : samples) {
      const size_t start = text_.empty() ? 0 : draw() % (text_.size() - run_.seq - 1);
      for (int i = 0; i < run_.seq; ++i) {
        sample.tokens.push_back(token(start + i));
        sample.targets.push_back(token(start + i + 1));
      }
    }
    return samples;
  }

 private:
  uint32_t draw() {
    state_ = state_ * 6364136223846793005U + 1442695040888963407U;
    return static_cast<uint32_t>(state_ >> 33);
  }
  int32_t token(size_t at) {
    return text_.empty() ? static_cast<int32_t>(draw() % static_cast<uint32_t>(run_.model.vocab))
                         : static_cast<unsigned char>(text_[at]);
  }

  const Experiment::Run& run_;
  uint64_t state_;
  std::string text_;
};

Training training_of(const Experiment& experiment) {
  const Experiment::Run& run = *experiment.run;
  Training training;
  training.model = run.model;
  training.seq = run.seq;
  training.microbatch_size = experiment.microbatch_size;
  training.type = run.type;
  training.grid = {.tp = experiment.tp, .cp = 1, .dp = experiment.dp, .pp = experiment.pp};
  training.initialisation = run.initialisation;
  training.optimizer = run.optimizer;
  training.clip_norm = run.clip_norm;
  return training;
}

// The pipeline ranks' times from the timeline; their bytes, the largest over each one's tensor and
// data-parallel ranks. Of those pipeline ranks that ran here.
std::vector<RankResult> rank_results(const Experiment& experiment, const Program& program,
                                     const Timeline& timeline, const std::vector<RankUse>& uses,
                                     const RankGrid& grid) {
  const std::vector<int> chunks = peak_activations(program.schedule, experiment.freed_at_I);
  std::vector<RankResult> ranks;
  for (int rank = 0; rank < experiment.pp; ++rank) {
    const RankTime& time = timeline.ranks[rank];
    RankResult::Memory memory{0, 0, 0, 0};
    bool ran = false;
    for (const RankUse& use : uses) {
      if (grid.place(use.world_rank).pp != rank) continue;
      ran = true;
      const auto raise = [&](double& most, const char* kind) {
        most = std::max(most, static_cast<double>(use.peak_bytes.at(kind)));
      };
      raise(memory.activations, "saved");
      raise(memory.weights, "weights");
      raise(memory.gradients, "gradients");
      raise(memory.optimizer, "optimizer");
    }
    if (ran) ranks.push_back({time.compute_s, time.pp_bubble_s, time.tp_bubble_s, chunks[rank], memory});
  }
  return ranks;
}

// All ranks' together; none where the backend does not count it.
cpu::BlasUse blas_use_of_all(Backend& backend) {
  cpu::BlasUse sum;
  if (!cpu::counts_blas(backend)) return sum;
  for (const int rank : backend.ranks()) {
    const cpu::BlasUse use = cpu::blas_use(backend, rank);
    sum.seconds += use.seconds;
    sum.flops += use.flops;
  }
  return sum;
}

// Where a prediction is to be held against steps, one counts only if the machine was itself before and after;
// else it is taken again, as long as there is patience.
class SteadySteps {
 public:
  /// Of ranks on the CPU; others' steps count as they are.
  SteadySteps(const Backend& backend, const HardwareProfile* profile, int ranks) {
    if (profile == nullptr || profile->shared.count() == 0 || backend.name() != "cpu") return;
    const int busy = std::min(ranks, profile->shared.count());
    probe_.emplace(cpu::make_backend({.world_size = busy}), profile->shared.rates[busy - 1]);
  }

  template <typename Step>
  StepResult take(Step step) {
    if (!probe_) return step();
    for (int tries = 1;; ++tries) {
      const auto start = std::chrono::steady_clock::now();
      bool steady = probe_->wait(patience_s_);
      patience_s_ -= std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      const OtherPrograms others;
      StepResult taken = step();
      steady = steady && others.share() <= kOthersShare && probe_->steady();
      if (!steady && tries < kMostTries) continue;
      if (!steady) ++disturbed_;
      return taken;
    }
  }
  /// Steps that count though the machine was not itself.
  [[nodiscard]] int disturbed() const { return disturbed_; }

 private:
  static constexpr int kMostTries = 4;
  static constexpr double kOthersShare = 0.1;  // of all processors

  std::optional<SpeedProbe> probe_;
  double patience_s_ = 60;
  int disturbed_ = 0;
};

}  // namespace

std::optional<MeasuredRun> run_measured(const ScheduleChoice& choice, const Experiment& experiment,
                                        const std::string& file, const DeviceOptions& options,
                                        const HardwareProfile* profile,
                                        const std::function<void()>& stepped) {
  const Experiment::Run& run = *experiment.run;
  std::optional<Prediction> predicted;
  if (profile != nullptr) {
    const StepPrediction step = predict_step(choice, experiment, *profile, file);
    predicted = {profile->name, step.step_s, step.oversubscribed};
  }
  Program program = program_for(choice, experiment, file);
  const Training training = training_of(experiment);
  const BackendOptions devices{.world_size = training.grid.size(),
                               .deadline_s = options.deadline_s,
                               .memory_limit = options.memory_limit,
                               .graphs = options.graphs,
                               .nccl = options.nccl};
  const auto backend =
      options.replay
          ? make_replay_backend(options.backend, devices,
                                {.rank = options.replay->rank, .times = call_times(options.replay->profile)})
      : options.processes != nullptr ? make_backend(options.backend, devices, *options.processes)
                                     : make_backend(options.backend, devices);
  Trainer trainer(*backend, std::move(program), training);
  if (options.time_kernels && !trainer.time_kernels(false))
    throw InputError("", "--time-kernels", options.backend + " does not time kernels one by one",
                     "leave it out");
  Data data(run, file);

  MeasuredRun measured{trainer.program(), {}, {}, {}};
  ProcessShare share;
  Result& result = measured.result;
  Measured& known = result.measured.emplace();
  known.backend = backend->name();
  known.type = to_string(run.type);
  known.processes = backend->processes();
  known.ranks_per_device = backend->ranks_per_device();
  if (options.replay) known.replayed = {options.replay->rank, options.replay->profile.name, {}};
  cpu::BlasUse before;
  StepResult step;
  const int samples = experiment.microbatches * experiment.microbatch_size * experiment.dp;
  SteadySteps steady(*backend, profile, training.grid.size());
  double timed_s = 0;  // of all steps since the warm-up, those taken again too
  const auto train = [&](const std::vector<TokenSample>& batch) {
    StepResult taken = trainer.step(batch);
    timed_s += taken.step_s;
    return taken;
  };
  for (int i = 0; i < run.warmup + run.steps; ++i) {
    if (i == run.warmup) {
      before = blas_use_of_all(*backend);
      trainer.take_paced_use();  // the warm-up's
      timed_s = 0;
    }
    const std::vector<TokenSample> batch = data.next(samples);
    step = i < run.warmup ? train(batch) : steady.take([&] { return train(batch); });
    if (!options.replay) share.losses.push_back(step.loss);  // a replay's numbers mean nothing
    if (i == 0 && run.parity) {
      const double loss = sum_of_all(*backend, "the loss", step.loss);
      const auto gradients = trainer.gradients();
      const RunGuard::Work work(backend->guard());  // the other processes wait meanwhile
      if (backend->process() == 0)
        known.parity = measure_parity(loss, gradients, training, batch, options.backend, devices);
    }
    if (i >= run.warmup) share.step_times_s.push_back(step.step_s);
    stepped();
  }
  if (known.replayed)
    for (const auto& [kind, use] : trainer.take_paced_use())
      known.replayed->groups[kind] = {use.calls, use.late_s, use.latest_s,
                                      static_cast<double>(use.link_bytes)};
  if (options.time_kernels) {
    trainer.time_kernels(true);
    std::vector<double> seconds;
    for (int i = 0; i < run.steps; ++i) {
      trainer.step(data.next(samples));
      seconds.push_back(trainer.take_kernel_seconds());
    }
    known.kernel_time_s = median(seconds);
  }
  if (predicted) predicted->disturbed_steps = steady.disturbed();
  known.predicted = predicted;
  if (cpu::counts_blas(*backend)) {
    const cpu::BlasUse after = blas_use_of_all(*backend);
    const double seconds = after.seconds - before.seconds;
    BlasShare& blas = known.blas.emplace();
    blas.share = seconds / (timed_s * static_cast<double>(backend->ranks().size()));
    if (seconds > 0)
      blas.gflop_per_s = (after.flops - before.flops) / seconds / 1e9;  // else no layer, no product
  }

  share.times = std::move(step.times);
  share.known = std::move(step.known);
  share.step_s = step.step_s;
  share.uses = trainer.use();
  share = share_of_all(*backend, measured.program, training.grid, std::move(share));
  if (backend->process() != 0) return std::nullopt;
  known.losses = std::move(share.losses);
  result.step_times_s = std::move(share.step_times_s);
  measured.uses = std::move(share.uses);
  for (const RankUse& use : measured.uses) {
    known.scratch_bytes = std::max(known.scratch_bytes, static_cast<double>(use.scratch_bytes));
    if (use.share_in_graphs)
      known.share_in_graphs = std::min(known.share_in_graphs.value_or(1), *use.share_in_graphs);
  }

  Timeline& timeline = measured.timeline;
  for (const OpTime& time : share.times) {
    timeline.start.push_back(time.start);
    timeline.end.push_back(time.end);
  }
  timeline.known = std::move(share.known);
  timeline.step_s = share.step_s;
  timeline.ranks = rank_times(measured.program, timeline);

  result.schedule = measured.program.schedule.name;
  result.configuration = configuration_of(experiment, measured.program);
  result.configuration.model = run.model.name;
  result.configuration.seq = run.seq;
  result.ranks = rank_results(experiment, measured.program, timeline, measured.uses, training.grid);
  return measured;
}

}  // namespace stp
