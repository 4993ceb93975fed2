#include "run_measured.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <new>

#include "baselines/registry.h"
#include "emulated_run.h"
#include "process_share.h"
#include "progress.h"
#include "run_simulated.h"
#include "speed_probe.h"
#include "stp/backends/backends.h"
#include "stp/base/json_input.h"
#include "stp/cpu/cpu_backend.h"
#include "stp/program/lower.h"
#include "stp/reference/transformer.h"
#include "stp/report/statistics.h"
#include "stp/runtime/call_times.h"
#include "table.h"
#include "training_checkpoints.h"

namespace stp {
namespace {

// The samples of each step, equal for every schedule: random tokens, or pieces of a text; random pixels.
class Data {
 public:
  Data(const Experiment::Run& run, const std::string& file, RunGuard& guard)
      : run_(run), state_(run.initialisation.seed) {
    if (run.text.empty()) return;
    const RunGuard::Work work(guard);  // other processes may read it faster
    text_ = read_text(run, file);
    if (text_.size() < static_cast<size_t>(run.seq) + 2)
      throw InputError(file, "run.text",
                       run.text + " has fewer than " + std::to_string(run.seq + 2) + " bytes",
                       "name a longer text");
  }

  // As next(count) leaves the state, in O(log count): 2^k draws are one affine map.
  void skip(int64_t count) {
    const int64_t of_tokens = text_.empty() ? 2 * int64_t{run_.seq} : 1;
    uint64_t left = static_cast<uint64_t>(count) * (of_tokens + int64_t{run_.vision_tokens} * kPatchElements);
    for (uint64_t factor = kFactor, term = kTerm; left > 0; left >>= 1) {
      if (left % 2 == 1) state_ = factor * state_ + term;
      term *= factor + 1;
      factor *= factor;
    }
  }

  std::vector<TokenSample> next(int count) {
    std::vector<TokenSample> samples(count);
    for (TokenSample& sample : samples) {
      const size_t start = text_.empty() ? 0 : draw() % (text_.size() - run_.seq - 1);
      for (int i = 0; i < run_.seq; ++i) {
        sample.tokens.push_back(token(start + i));
        sample.targets.push_back(token(start + i + 1));
      }
      for (int64_t i = 0; i < int64_t{run_.vision_tokens} * kPatchElements; ++i)
        sample.patches.push_back(static_cast<float>(draw() % 256) / 128 - 1);  // exact in every type
    }
    return samples;
  }

 private:
  uint32_t draw() {
    state_ = state_ * kFactor + kTerm;
    return static_cast<uint32_t>(state_ >> 33);
  }
  int32_t token(size_t at) {
    return text_.empty() ? static_cast<int32_t>(draw() % static_cast<uint32_t>(run_.model.vocab))
                         : static_cast<unsigned char>(text_[at]);
  }

  static constexpr uint64_t kFactor = 6364136223846793005U, kTerm = 1442695040888963407U;  // Knuth's MMIX

  const Experiment::Run& run_;
  uint64_t state_;
  std::string text_;
};

Training training_of(const Experiment& experiment, bool replay) {
  const Experiment::Run& run = *experiment.run;
  Training training;
  training.model = run.model;
  training.seq = run.seq;
  training.vision_tokens = run.vision_tokens;
  training.microbatch_size = experiment.microbatch_size / experiment.strategy.parts_of_microbatch();
  training.type = run.type;
  training.initialisation = run.initialisation;
  training.optimizer = run.optimizer;
  training.clip_norm = run.clip_norm;
  if (replay) training.initial_repeat = int64_t{1} << 20;
  return training;
}

// Results of the pipeline ranks that ran here: times from the timeline, and the maximum of bytes over their
// tensor- and data-parallel ranks.
std::vector<RankResult> results_of_uses(const std::vector<RankResult>& all, const std::vector<RankUse>& uses,
                                        const RankGrid& grid, bool real_tensors) {
  std::vector<RankResult> ranks;
  for (int rank = 0; rank < grid.pp; ++rank) {
    RankResult::Memory memory{};
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
      raise(memory.host, "host");
    }
    if (!ran) continue;
    ranks.push_back(all[rank]);
    if (real_tensors) ranks.back().memory = memory;
  }
  return ranks;
}

// The sum over all ranks; none if the backend has no counter.
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

// Counts steps with a slow machine before, during or after them, if steps are compared with a prediction.
class DisturbedSteps {
 public:
  /// Only for ranks on the CPU, all in this process: probes of several processes would disturb each other.
  DisturbedSteps(Backend& backend, const HardwareProfile* profile, int ranks) {
    if (profile == nullptr || profile->shared.count() == 0 || backend.name() != "cpu" ||
        backend.processes().count() > 1)
      return;
    const int busy = std::min(ranks, profile->shared.count());
    probe_.emplace(cpu::make_backend({.world_size = busy}), profile->shared.rates[busy - 1]);
  }

  template <typename Step>
  StepResult take(Step step) {
    if (!probe_) return step();
    const bool steady = probe_->steady();
    const OtherPrograms others;
    StepResult taken = step();
    if (!steady || others.share() > kOthersShare || !probe_->steady()) ++count_;
    return taken;
  }
  [[nodiscard]] int count() const { return count_; }

 private:
  static constexpr double kOthersShare = 0.1;  // of all processors

  std::optional<SpeedProbe> probe_;
  int count_ = 0;
};

BackendOptions backend_options(const DeviceOptions& options, const Program& program,
                               const std::vector<double>& seconds) {
  BackendOptions devices = options;
  devices.world_size = program.strategy.world_size();
  if (options.emulates()) devices.hooks.takes = [seconds](int, uint32_t op) { return seconds[op]; };
  if (options.fault && options.fault->kind == FaultKind::disk && options.processes != nullptr &&
      process_of_rank(options.fault->rank, devices.world_size, options.processes->count()) != 0)
    throw InputError("", "--inject", "fills the disk of a process that writes nothing",
                     "name a rank of process 0");
  if (options.fault)
    devices.hooks = with_fault(std::move(devices.hooks), *options.fault, program, program.strategy.grid());
  return devices;
}

// The simulator's step: what the emulated one should take.
Prediction predict_emulated(const Experiment& experiment, const Program& program, std::vector<double> seconds,
                            const DeviceOptions& options, const RankGrid& grid) {
  if (options.fault) add_delay(*options.fault, program, grid, seconds);
  return {experiment.hardware ? experiment.hardware->profile.name : "unit costs",
          timeline_of(program, seconds, {}).step_s, false};
}

constexpr const char* kLessMemory =
    "use a smaller model, a shorter seq, a smaller microbatch_size, fewer replicas, or a machine with more";

std::string needed_gb(const Program& program, const Experiment& experiment) {
  const double gb = bytes_of_run(program, experiment) / 1e9;
  return "at least " + fixed(gb, gb < 1 ? 4 : 1) + " GB for the tensors of its " +
         std::to_string(experiment.strategy.world_size()) + " rank(s)";
}

// Refuses a run that the memory of its one device cannot hold: the system would kill the program without a
// message.
Program program_that_fits(const ScheduleChoice& choice, const Experiment& experiment, const std::string& file,
                          const DeviceOptions& options) {
  Program program = program_for(choice, experiment, file);
  if (options.replay || (options.processes != nullptr && options.processes->count() > 1)) return program;
  const double memory = built_in(options.backend).memory();
  if (bytes_of_run(program, experiment) > memory)
    throw InputError(file, (experiment.field.empty() ? "" : experiment.field + ".") + "model",
                     "needs " + needed_gb(program, experiment) + " with " + program.schedule.name +
                         ", and there are " + fixed(memory / 1e9, 1) + " GB",
                     kLessMemory);
  return program;
}

std::unique_ptr<Backend> open_backend(const DeviceOptions& options, const BackendOptions& devices) {
  begin_phase("setting up " + (options.replay ? "1 rank" : std::to_string(devices.world_size) + " ranks"));
  if (options.replay)
    return make_replay_backend(options.backend, devices,
                               {.rank = options.replay->rank, .times = call_times(options.replay->profile)});
  return make_backend(options.backend, devices, options.processes);
}

// The gradients of a step of one rank, without pipeline and collectives.
std::map<std::string, std::vector<double>> gradients_of_one_rank(Training training,
                                                                 const std::optional<Checkpoint>& resumed,
                                                                 const std::vector<TokenSample>& samples,
                                                                 const std::string& backend_name,
                                                                 BackendOptions options) {
  training.record_times = false;
  const int microbatches = static_cast<int>(samples.size()) / training.microbatch_size;
  options.world_size = 1;
  const auto backend = make_backend(backend_name, options);
  // A vision encoder is a chunk of its own.
  const bool vision = training.model.has_vision();
  const Schedule schedule = make_schedule(find_generator("1f1b-i"), {1, microbatches, vision ? 2 : 1});
  std::vector<int> layers(vision ? 1 : 0, 0);
  layers.push_back(training.model.layers);
  Trainer trainer(
      *backend,
      lower(schedule, layers,
            {.optimizer = true, .embedding = true, .vision_layers = training.model.vision.layers}),
      training);
  if (resumed) resumed->restore(trainer);
  trainer.step(samples);
  return trainer.gradients();
}

// The parity of a run with this loss and these gradients in its first step over `samples`, which began with
// `weights`, or with the initial ones if there are none. In bf16, and where float32 is beyond its limit, it
// also trains one rank on the same samples, with the same backend and options except the world size.
Parity measure_parity(double loss, const Matrices& gradients, const Matrices& weights,
                      const std::optional<Checkpoint>& resumed, const Training& training,
                      const std::vector<TokenSample>& samples, const std::string& backend,
                      const BackendOptions& options) {
  const reference::LossAndGradients exact =
      weights.empty() ? reference::first_step(training.model, training.initialisation, samples)
                      : reference::loss_and_gradients(training.model, weights, samples);
  Parity parity{loss == exact.loss ? 0 : std::abs(loss / exact.loss - 1),  // both may be 0
                reference::gradient_error(gradients, exact.gradients),
                {}};
  if (training.type == DType::bf16 ||
      (training.type == DType::f32 && parity.gradient > parity_limit(to_string(training.type))))
    parity.one_rank_gradient = reference::gradient_error(
        gradients_of_one_rank(training, resumed, samples, backend, options), exact.gradients);
  return parity;
}

class MeasuredTraining {
 public:
  MeasuredTraining(const ScheduleChoice& choice, const Experiment& experiment, const std::string& file,
                   const DeviceOptions& options, const HardwareProfile* profile)
      : experiment_(experiment),
        run_(*experiment.run),
        options_(options),
        predicted_(profile != nullptr ? std::optional(predict_step(choice, experiment, *profile, file))
                                      : std::nullopt),
        training_(training_of(experiment, options.replay.has_value())),
        program_(program_that_fits(choice, experiment, file, options)),
        seconds_(options.emulates() ? emulated_seconds(experiment, program_) : std::vector<double>()),
        devices_(backend_options(options, program_, seconds_)),
        checkpoints_(options.checkpoints, training_, run_.warmup + run_.steps),
        backend_(open_backend(options, devices_)),
        trainer_(*backend_, program_, training_),
        data_(run_, file, backend_->guard()),
        disturbed_(*backend_, profile, program_.strategy.world_size()) {
    if (options.time_kernels && !trainer_.time_kernels(false))
      throw InputError("", "--time-kernels", options.backend + " does not time kernels one by one",
                       "leave it out");
    if (backend_->processes().is_root()) {
      checkpoints_.check_folders();
      if (checkpoints_.resumed() && !checkpoints_.resumed()->has_optimizer_state())
        std::fprintf(stderr, "stp: %s has no optimizer state: training begins with its weights\n",
                     options.checkpoints.resume.c_str());
    }
    if (checkpoints_.resumed()) checkpoints_.resumed()->restore(trainer_);
    data_.skip(checkpoints_.progress().samples);
    measured_.backend = backend_->name();
    measured_.type = to_string(run_.type);
    measured_.processes = backend_->processes().count();
    measured_.ranks_per_device = backend_->ranks_per_device();
    if (options.replay) measured_.replayed = {options.replay->rank, options.replay->profile.name, {}};
    if (options.emulates())
      predicted_ = predict_emulated(experiment, program_, seconds_, options, program_.strategy.grid());
  }

  /// Runs warm-up and timed steps; calls `stepped` after each.
  void train(const std::function<void()>& stepped) {
    for (int i = 0; i < run_.warmup + run_.steps; ++i) {
      const bool timed = i >= run_.warmup;
      begin_phase(program_.schedule.name + ": step " + std::to_string(i + 1) + " of " +
                  std::to_string(run_.warmup + run_.steps));
      if (i == run_.warmup) begin_timed_steps();
      const std::vector<TokenSample> samples = data_.next(samples_of_step());
      const bool compares = i == 0 && run_.parity;
      const Matrices before = compares && checkpoints_.resumed() ? trainer_.weights() : Matrices{};
      last_ = timed ? disturbed_.take([&] { return step(samples); }) : step(samples);
      if (!options_.replay && !options_.emulates())  // whose values are meaningless
        share_.losses.push_back(last_.loss);
      if (compares) compare_with_reference(samples, before);
      if (timed) share_.step_times_s.push_back(last_.step_s);
      checkpoints_.step_done(trainer_, samples_of_step(), backend_->processes().is_root());
      stepped();
    }
    trainer_.finish();
    end_timed_steps();
  }

  /// Times kernels in as many further steps.
  void time_kernels() {
    trainer_.time_kernels(true);
    std::vector<double> seconds;
    for (int i = 0; i < run_.steps; ++i) {
      begin_phase(program_.schedule.name + ": timing the kernels of step " + std::to_string(i + 1) + " of " +
                  std::to_string(run_.steps));
      trainer_.step(data_.next(samples_of_step()));
      seconds.push_back(trainer_.take_kernel_seconds());
    }
    measured_.kernel_time_s = median(seconds);
  }

  /// Returns the measurements of all processes at process 0, and nothing at the others.
  std::optional<MeasuredRun> take() {
    share_.times = std::move(last_.times);
    share_.known = std::move(last_.known);
    share_.step_s = last_.step_s;
    share_.uses = trainer_.use();
    share_ = share_of_all(backend_->processes(), program_, program_.strategy.grid(), std::move(share_));
    if (!backend_->processes().is_root()) return std::nullopt;
    MeasuredRun run{program_, timeline_of_share(), {}, std::move(share_.uses)};
    measured_.losses = std::move(share_.losses);
    for (const RankUse& use : run.uses) {
      measured_.scratch_bytes = std::max(measured_.scratch_bytes, static_cast<double>(use.scratch_bytes));
      if (use.share_in_graphs)
        measured_.share_in_graphs = std::min(measured_.share_in_graphs.value_or(1), *use.share_in_graphs);
    }
    Result& result = run.result;
    result.schedule = program_.schedule.name;
    result.configuration = configuration_of(experiment_, program_);
    result.step_times_s = std::move(share_.step_times_s);
    result.ranks = results_of_uses(rank_results(experiment_, program_, run.timeline), run.uses,
                                   program_.strategy.grid(), !options_.emulates());
    result.measured = std::move(measured_);
    return run;
  }

 private:
  [[nodiscard]] int samples_of_step() const {
    return experiment_.microbatches * experiment_.microbatch_size * experiment_.strategy.dp;
  }

  StepResult step(const std::vector<TokenSample>& samples) {
    StepResult taken = trainer_.step(samples);
    timed_s_ += taken.step_s;
    return taken;
  }

  // Excludes the warm-up.
  void begin_timed_steps() {
    blas_before_ = blas_use_of_all(*backend_);
    trainer_.take_emulated_use();
    timed_s_ = 0;
  }

  void end_timed_steps() {
    if (measured_.replayed)
      for (const auto& [kind, use] : trainer_.take_emulated_use())
        measured_.replayed->groups[kind] = {use.calls, use.late_s, use.latest_s,
                                            static_cast<double>(use.link_bytes)};
    if (predicted_) predicted_->disturbed_steps = disturbed_.count();
    measured_.predicted = predicted_;
    if (!cpu::counts_blas(*backend_)) return;
    const cpu::BlasUse use = blas_use_of_all(*backend_);
    const double seconds = use.seconds - blas_before_.seconds;
    BlasShare& blas = measured_.blas.emplace();
    blas.share = seconds / (timed_s_ * static_cast<double>(backend_->ranks().size()));
    if (seconds > 0)  // else there are no layers and no GEMMs
      blas.gflop_per_s = (use.flops - blas_before_.flops) / seconds / 1e9;
  }

  // `before`: the weights with which the step began, if they were not the initial ones.
  void compare_with_reference(const std::vector<TokenSample>& samples, const Matrices& before) {
    begin_phase(program_.schedule.name + ": comparing with one rank");
    const double loss = sum_of_all(backend_->processes(), last_.loss);
    const auto gradients = trainer_.gradients();
    const RunGuard::Work work(backend_->guard());  // the other processes wait for this one
    if (backend_->processes().is_root())
      measured_.parity = measure_parity(loss, gradients, before, checkpoints_.resumed(), training_, samples,
                                        options_.backend, devices_);
  }

  Timeline timeline_of_share() {
    Timeline timeline;
    for (const OpTime& time : share_.times) {
      timeline.start.push_back(time.start);
      timeline.end.push_back(time.end);
    }
    timeline.known = std::move(share_.known);
    timeline.step_s = share_.step_s;
    timeline.ranks = rank_times(program_, timeline);
    return timeline;
  }

  const Experiment& experiment_;
  const Experiment::Run& run_;
  const DeviceOptions& options_;
  std::optional<Prediction> predicted_;
  const Training training_;
  const Program program_;
  const std::vector<double> seconds_;  // emulated: of each op
  const BackendOptions devices_;
  TrainingCheckpoints checkpoints_;
  const std::unique_ptr<Backend> backend_;
  Trainer trainer_;
  Data data_;
  DisturbedSteps disturbed_;
  Measured measured_;
  ProcessShare share_;
  StepResult last_;
  cpu::BlasUse blas_before_;
  double timed_s_ = 0;  // of all steps since the warm-up
};

}  // namespace

std::string read_text(const Experiment::Run& run, const std::string& file) {
  try {
    return read_file(run.text);
  } catch (const InputError& error) {
    throw InputError(file, "run.text", error.what(), "");
  }
}

bool DeviceOptions::emulates() const { return built_in(backend).emulates; }

std::optional<MeasuredRun> run_measured(const ScheduleChoice& choice, const Experiment& experiment,
                                        const std::string& file, const DeviceOptions& options,
                                        const HardwareProfile* profile,
                                        const std::function<void()>& stepped) {
  try {
    MeasuredTraining training(choice, experiment, file, options, profile);
    training.train(stepped);
    if (options.time_kernels) training.time_kernels();
    return training.take();
  } catch (const std::exception& error) {
    const std::string what = error.what();
    const bool no_memory = dynamic_cast<const std::bad_alloc*>(&error) != nullptr ||
                           what.find("out of memory") != std::string::npos;
    if (!no_memory || options.replay) throw;
    throw std::runtime_error(file + ": " + what + "; the scenario needs " +
                             needed_gb(program_for(choice, experiment, file), experiment) + ": " +
                             (options.memory_limit > 0 ? "raise --memory-limit, or " : "") + kLessMemory);
  }
}

double parity_limit(const std::string& type) { return type == to_string(DType::f64) ? 1e-10 : 1e-5; }

Equality equality_of(const Parity& parity, const std::string& type) {
  const bool bf16 = type == to_string(DType::bf16);
  const double limit = parity_limit(type), own = parity.one_rank_gradient.value_or(0);
  const bool by_one_rank = bf16 || 2 * own > limit;
  if (!(parity.loss <= (bf16 ? 0x1p-8 : limit) && parity.gradient <= (by_one_rank ? 2 * own : limit)))
    return Equality::differs;
  return by_one_rank && parity.gradient >= 0.5 ? Equality::too_inexact : Equality::equal;
}

}  // namespace stp
