#include <algorithm>
#include <cstdio>
#include <exception>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "commands.h"
#include "emulated_run.h"
#include "finished_rows.h"
#include "interrupt.h"
#include "output_folder.h"
#include "progress.h"
#include "run_measured.h"
#include "run_report.h"
#include "run_simulated.h"
#include "same_everywhere.h"
#include "stp/backends/backends.h"
#include "stp/base/data.h"
#include "stp/base/error.h"
#include "stp/checkpoint/checkpoint.h"
#include "stp/report/chrome_trace.h"

namespace stp {
namespace {

using nlohmann::json;

struct Plan {
  Scenario scenario;
  std::vector<Experiment> experiments;  // the scenario's, as they run
  DeviceOptions devices;
  std::optional<HardwareProfile> predicts;  // each step
  bool one_device = false;                  // all ranks share it and take turns

  [[nodiscard]] std::optional<std::string> predictor() const {
    if (devices.emulates()) return "the simulator";
    return predicts ? std::optional(predicts->name) : std::nullopt;
  }
  [[nodiscard]] Evidence evidence() const {
    if (devices.emulates()) return Evidence::emulated;
    return devices.replay ? Evidence::replayed : Evidence::measured;
  }
};

// The outcome, at the root.
struct Outcome {
  RunReport report;
  json rows = json::array(), csv_rows = json::array();
  std::string trace;
  bool whole = true;  // false: a signal ended it
};

int steps_of(const Experiment& experiment) { return experiment.run->warmup + experiment.run->steps; }

HardwareProfile profile_of_flag(const std::string& word, const char* flag) {
  return read_profile(find_data_file(word, "profiles", "", flag));
}

void check_devices(const DeviceOptions& devices, const Processes& processes) {
  const auto refuse = [](const char* flag, const std::string& problem,
                         const std::string& remedy = "leave it out") {
    throw InputError("", flag, problem, remedy);
  };
  const std::string& backend = devices.backend;
  const BuiltIn& kind = built_in(backend);
  if (processes.count() > 1) kind.check_processes(devices.nccl);  // before the first call of the driver
  kind.check(processes.index_on_node());
  if (!devices.nccl.empty() && processes.count() == 1)
    refuse("--nccl", "no launcher started several processes, so nothing goes over NCCL");
  if (devices.fault && kind.ranks > 0) refuse("--inject", backend + " cannot be made to fail");
  if (devices.fault && kind.emulates && devices.fault->kind == FaultKind::nan)
    refuse("--inject", backend + " computes no values", "inject another fault, or use --backend cpu");
  if (kind.emulates && devices.memory_limit > 0) refuse("--memory-limit", backend + " takes no memory");
  const CheckpointOptions& files = devices.checkpoints;
  if (kind.emulates && !(files.save + files.resume).empty())
    refuse(files.save.empty() ? "--resume" : "--save", backend + " computes no weights",
           "leave it out, or use --backend cpu");
  if (devices.graphs && !kind.graphs) refuse("--graphs", backend + " has none");
}

// Acts, with the place of an experiment in errors that have none and are not of a flag.
template <typename Act>
auto for_experiment(const Experiment& experiment, const std::string& file, Act act) {
  try {
    return act();
  } catch (const InputError& error) {
    if (!error.file().empty() || error.field().empty() || error.field().starts_with("--")) throw;
    throw error.below(experiment.field).in_file(file);
  }
}

void check_replay(const Experiment& experiment, int rank) {
  const int world = experiment.strategy.world_size();
  if (rank >= world)
    throw InputError("", "parallel",
                     "has " + std::to_string(world) + " ranks, and no rank " + std::to_string(rank),
                     "use --replay-rank 0 to " + std::to_string(world - 1));
  if (experiment.strategy.post_validation)
    throw InputError("", "post_validation",
                     "is not possible in a replay, which receives no norms from other ranks", "remove it");
  if (experiment.run && experiment.run->parity)
    throw InputError("", "run.parity", "is not possible in a replay, which receives no data from other ranks",
                     "leave it out, or run without --replay-rank");
}

void check_experiment(const Experiment& experiment, const Plan& plan) {
  const std::string& backend = plan.devices.backend;
  const BuiltIn& kind = built_in(backend);
  check_processes(backend, *plan.devices.processes, experiment.strategy.world_size(), plan.devices.nccl);
  if (plan.predicts && plan.one_device && experiment.strategy.world_size() > kind.ranks)
    throw InputError("", "--predict", "cannot be compared with ranks that share one device of " + backend,
                     "use scenarios of one rank, --replay-rank, or leave it out");
  if (!experiment.run)
    throw InputError(plan.scenario.file, "run", "is missing: this is a scenario to be simulated",
                     "use stp simulate, or say how it is trained (docs/scenarios.md)");
  if (experiment.run->model.has_vision() && !kind.vision)
    throw InputError(
        "", "model",
        "is " + experiment.run->model.name + ", for whose vision encoder " + backend + " has no kernels",
        "use a model without vision_config, or --backend cpu");
  if (std::ranges::find(kind.types, experiment.run->type) == kind.types.end())
    throw InputError(plan.scenario.file, "run.type",
                     "is " + to_string(experiment.run->type) + ", which " + backend + " does not compute in",
                     "use another, or --backend cpu");
}

Plan make_plan(const RunOptions& options, Processes& processes) {
  Plan plan;
  plan.devices = options.devices;
  plan.devices.memory_limit = static_cast<size_t>(options.memory_limit_mib * (1 << 20));
  plan.devices.processes = &processes;
  if (std::string& folder = plan.devices.checkpoints.resume; !folder.empty())
    folder = last_checkpoint_in(folder);  // the same for the whole run
  if (!options.inject.empty()) plan.devices.fault = read_fault(options.inject);
  check_devices(plan.devices, processes);
  plan.scenario = read_scenario(options.scenario, Changes(options.set));
  if (processes.is_root()) {
    say_differences(plan.scenario);
    check_outputs({{options.json, "--json"}, {options.csv, "--csv"}, {options.trace, "--trace"}});
  }
  for (const Experiment& experiment : plan.scenario.experiments)
    plan.experiments.push_back(plan.devices.emulates() ? emulated_experiment(experiment, plan.scenario.file)
                                                       : experiment);
  if (plan.devices.emulates() && (!options.predict.empty() || options.replay_rank >= 0))
    throw InputError("", options.predict.empty() ? "--replay-rank" : "--predict",
                     "is for kernels that compute, and each emulated step has the simulator's beside it",
                     "leave it out");
  if (!options.devices.checkpoints.save.empty() && plan.scenario.rows() > 1)
    throw InputError("", "--save",
                     "is for one run, but the scenario has " + std::to_string(plan.scenario.rows()) + " rows",
                     "choose one schedule and configuration with --set, or in a copy");
  if (!options.predict.empty()) plan.predicts = profile_of_flag(options.predict, "--predict");
  if (options.replay_rank >= 0) {
    if (processes.count() > 1)
      throw InputError(
          "", "--replay-rank",
          "is one rank alone, but the launcher started " + std::to_string(processes.count()) + " processes",
          "start it without the launcher");
    for (const Experiment& experiment : plan.scenario.experiments)
      for_experiment(experiment, plan.scenario.file, [&] { check_replay(experiment, options.replay_rank); });
    plan.devices.replay = {options.replay_rank, profile_of_flag(options.replay_cluster, "--replay-cluster")};
  }
  plan.one_device = processes.count() == 1 && built_in(plan.devices.backend).ranks > 0;
  for (const Experiment& experiment : plan.experiments)
    for_experiment(experiment, plan.scenario.file, [&] { check_experiment(experiment, plan); });
  return plan;
}

// Either all processes make the plan, or none continues: the root reports errors of any process, and what one
// has other than it.
std::optional<Plan> make_plan_together(const RunOptions& options, Processes& processes) {
  if (processes.count() == 1) return make_plan(options, processes);
  Plan plan;
  json found;
  try {
    plan = make_plan(options, processes);
    found = same_everywhere(plan.scenario, plan.devices);
  } catch (const InputError& error) {
    found = {{"problem", error.what()}};
  }
  const std::string problem = difference_between(processes.gather(json_text(found)), plan.scenario.file);
  if (!problem.empty()) std::fprintf(stderr, "stp: %s\n", problem.c_str());
  if (!processes.broadcast(problem).empty()) return std::nullopt;
  return plan;
}

bool refuses(const ScheduleChoice& choice, const Experiment& experiment, const std::string& file) {
  try {
    schedule_for(choice, experiment, file);
    return false;
  } catch (const InputError&) {
    return true;
  }
}

// What the root keeps of one case; the others keep nothing.
json run_case(const Plan& plan, const RunOptions& options, const Experiment& experiment,
              const ScheduleChoice& choice, const std::function<void()>& stepped) {
  const auto run = for_experiment(experiment, plan.scenario.file, [&] {
    return run_measured(choice, experiment, plan.scenario.file, plan.devices,
                        plan.predicts ? &*plan.predicts : nullptr, stepped);
  });
  if (!run) return {};  // the root has this process's measurements
  json made = {
      {"row", to_json(run->result)}, {"csv", csv_row(run->result)}, {"line", RunReport::line_of(*run)}};
  if (options.trace.empty()) return made;
  std::ostringstream text;
  write_chrome_trace(text, run->program, run->timeline, heading(made["row"]), "s",
                     options.all_microbatches ? 0 : microbatches_of_short_trace(run->program));
  made["trace"] = text.str();
  return made;
}

// Runs all cases that are not finished and adds all to `outcome`; calls `stepped` after every step. With
// several processes only the root has an outcome, and knows what is finished.
void run_all(const Plan& plan, const RunOptions& options, const Arguments& argv,
             const std::function<void()>& stepped, Outcome& outcome, FinishedRows& kept) {
  Processes& processes = *plan.devices.processes;
  bool any = false;
  for (const Experiment& experiment : plan.experiments) {
    for (const ScheduleChoice& choice : experiment.schedules) {
      if (experiment.run->skip_refused && refuses(choice, experiment, plan.scenario.file)) {
        outcome.report.add_refused();
        for (int i = 0; i < steps_of(experiment); ++i) stepped();
        continue;
      }
      any = true;
      json made = kept.find(experiment, choice, argv);
      if (processes.broadcast(made.is_null() ? "" : "finished").empty()) {
        made = run_case(plan, options, experiment, choice, stepped);
        if (processes.is_root()) kept.keep(experiment, choice, argv, made);
      } else {
        for (int i = 0; i < steps_of(experiment); ++i) stepped();
      }
      if (!processes.is_root()) continue;
      outcome.rows.push_back(made.at("row"));
      outcome.csv_rows.push_back(made.at("csv"));
      outcome.report.add(made.at("line"), experiment, choice);
      if (made.contains("trace")) outcome.trace = made.at("trace");
    }
  }
  if (!any)
    throw InputError(plan.scenario.file, "schedules", "refuse all configurations",
                     "correct at least one of them");
}

Outcome run_with_progress(const Plan& plan, const RunOptions& options, const Arguments& argv,
                          FinishedRows& kept) {
  const Processes& processes = *plan.devices.processes;
  size_t steps = 0;
  for (const Experiment& experiment : plan.experiments)
    steps += experiment.schedules.size() * steps_of(experiment);
  std::optional<ProgressBar> progress;
  if (processes.is_root()) {
    progress.emplace("running " + plan.scenario.name, steps);
    note_interrupts();
  } else {
    end_at_interrupts(true);
  }
  Outcome outcome{{plan.devices, plan.predictor(), plan.one_device}};
  const auto stepped = [&] {
    if (progress) progress->step();
    check_interrupted();
  };
  try {
    run_all(plan, options, argv, stepped, outcome, kept);
  } catch (const Interrupted&) {
    if (outcome.rows.empty()) throw;
    outcome.whole = false;
  } catch (const InputError& error) {
    throw kept.refused(error);
  }
  return outcome;
}

void print_report(const Plan& plan, const RunReport& report) {
  const auto& replay = plan.devices.replay;
  const std::string whose = replay
                                ? "rank " + std::to_string(replay->rank) + " alone, over emulated links of " +
                                      replay->profile.name + "; bubbles"
                                : "bubbles of the busiest rank";
  std::printf("%s (%s on %s; %s in the last step)\n%s", plan.scenario.title.c_str(),
              to_string(plan.evidence()).c_str(), plan.devices.backend.c_str(), whose.c_str(),
              report.text().c_str());
}

// What `stp doctor` says, of the device of this process, before a run trusts it.
void examine_device(const Plan& plan, const Processes& processes) {
  const BuiltIn& kind = built_in(plan.devices.backend);
  if (kind.ranks == 0) return;  // processors
  begin_phase("checking the device");
  const std::vector<Finding> found =
      examine(kind, processes.index_on_node(), {plan.experiments.front().run->type});
  for (const Finding& each : found)
    if (each.state == Finding::State::falls_back && processes.is_root())
      std::fprintf(stderr, "stp: %s: %s\n", each.what.c_str(), each.detail.c_str());
  if (const std::string lack = lack_of(found); !lack.empty())
    throw InputError("", "--backend", kind.name + " is not fit to run: " + lack,
                     "see stp doctor, or use --backend cpu");
}

int run(const RunOptions& options, const Arguments& argv, Processes& processes) {
  const std::optional<Plan> plan = make_plan_together(options, processes);
  if (!plan) return 2;
  examine_device(*plan, processes);
  // A run that saves checkpoints goes on from those (--resume).
  FinishedRows kept(processes.is_root() && options.devices.checkpoints.save.empty() ? options.json : "");
  Outcome outcome = run_with_progress(*plan, options, argv, kept);
  if (!processes.is_root()) return 0;
  const size_t finished = outcome.rows.size();
  if (!outcome.whole && !kept.path().empty())
    throw Interrupted(kept_rows(finished, plan->scenario.rows(), {kept.path()}) +
                      ", and the same command goes on from them");
  json record =
      make_record(plan->scenario.as_run(), plan->evidence(), argv, "results", std::move(outcome.rows));
  if (!outcome.whole) record["interrupted"] = true;
  const SharedJson accelerator = built_in(plan->devices.backend).facts();
  record["system"]["accelerator"] = accelerator ? *accelerator : json();
  const bool prints = write_record(options.json, record);
  if (write_csv(options.csv, outcome.csv_rows) && prints) print_report(*plan, outcome.report);
  if (!options.trace.empty()) write_new_file(options.trace, outcome.trace);  // last: the largest
  if (!outcome.whole)
    throw Interrupted(kept_rows(finished, plan->scenario.rows(), {options.json, options.csv, options.trace}));
  kept.remove();
  const std::string failure = outcome.report.failure();
  if (!failure.empty()) throw std::runtime_error(failure);
  return 0;
}

}  // namespace

int run_command(const RunOptions& options, const Arguments& argv) {
  const std::unique_ptr<Processes> processes = join_processes(options.devices.deadline_s);
  try {
    return run(options, argv, *processes);
  } catch (const std::exception& error) {
    // A failure of this process must end the others, which may wait for it.
    if (processes->count() > 1) processes->abort(error.what(), exit_code_of(error));
    throw;
  }
}

}  // namespace stp
