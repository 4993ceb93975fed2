#include <algorithm>
#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "commands.h"
#include "interrupt.h"
#include "output_folder.h"
#include "run_measured.h"
#include "run_report.h"
#include "run_simulated.h"
#include "stp/backends/backends.h"
#include "stp/base/data.h"
#include "stp/base/error.h"
#include "stp/report/chrome_trace.h"
#include "table.h"

namespace stp {
namespace {

using nlohmann::json;

// What is to be run, checked.
struct Plan {
  Scenario scenario;
  DeviceOptions devices;
  std::optional<ProcessPlace> place;        // where a launcher started several processes
  std::optional<HardwareProfile> predicts;  // each step
  bool one_device = false;                  // which all ranks take turns on

  [[nodiscard]] bool is_root() const { return !place || place->rank == 0; }
  [[nodiscard]] Evidence evidence() const { return devices.replay ? Evidence::replayed : Evidence::measured; }
};

// What came of it, at the root.
struct Outcome {
  RunReport report;
  json rows = json::array();
  std::string trace;
};

int world_size(const Experiment& experiment) { return experiment.tp * experiment.pp * experiment.dp; }

int steps_of(const Experiment& experiment) { return experiment.run->warmup + experiment.run->steps; }

HardwareProfile profile_of_flag(const std::string& word, const char* flag) {
  return read_profile(find_data_file(word, "profiles", "", flag));
}

void check_devices(const RunOptions& options, const std::optional<ProcessPlace>& place) {
  if (!place) check_backend(options.backend);
  if (place) check_processes(options.backend, options.nccl);
  if (!options.nccl.empty() && !place)
    throw InputError("", "--nccl", "no launcher started several processes, so nothing goes over NCCL",
                     "leave it out");
  if (options.graphs && !backend_has_graphs(options.backend))
    throw InputError("", "--graphs", options.backend + " has none", "leave it out");
}

void check_place(const RunOptions& options, const Scenario& scenario, const ProcessPlace& place) {
  if (options.replay_rank >= 0)
    throw InputError(
        "", "--replay-rank",
        "is one rank alone, but the launcher started " + std::to_string(place.world_size) + " processes",
        "start it without the launcher");
  for (const Experiment& experiment : scenario.experiments) {
    check_world(world_size(experiment), place, scenario.file,
                experiment.field.empty() ? "parallel" : experiment.field + ".parallel");
    // What all processes would refuse is refused before they meet.
    if (experiment.run && !experiment.run->skip_refused)
      for (const ScheduleChoice& choice : experiment.schedules)
        schedule_for(choice, experiment, scenario.file);
  }
}

void check_experiment(const Experiment& experiment, const Plan& plan) {
  const std::string& backend = plan.devices.backend;
  if (plan.predicts && plan.one_device && world_size(experiment) > backend_ranks(backend))
    throw InputError("", "--predict", "cannot be held against ranks that share one device of " + backend,
                     "use scenarios of one rank, --replay-rank, or leave it out");
  if (!experiment.run)
    throw InputError(plan.scenario.file, "run", "is missing: this is a scenario to be simulated",
                     "use stp simulate, or say how it is trained (docs/scenarios.md)");
  const std::vector<DType> types = backend_types(backend);
  if (std::find(types.begin(), types.end(), experiment.run->type) == types.end())
    throw InputError(plan.scenario.file, "run.type",
                     "is " + to_string(experiment.run->type) + ", which " + backend + " does not compute in",
                     "use another, or --backend cpu");
}

Plan make_plan(const RunOptions& options) {
  Plan plan;
  plan.place = place_among_processes(options.backend);
  check_devices(options, plan.place);
  plan.devices = {.backend = options.backend,
                  .deadline_s = options.deadline_s,
                  .memory_limit = static_cast<size_t>(options.memory_limit_mib * (1 << 20)),
                  .graphs = options.graphs,
                  .nccl = options.nccl,
                  .time_kernels = options.time_kernels,
                  .replay = {}};
  plan.scenario = read_scenario(options.scenario);
  if (plan.place) {
    check_place(options, plan.scenario, *plan.place);
    check_backend(options.backend, plan.place->local_rank);
  }
  if (plan.is_root()) {
    refuse_existing(options.json, "--json");
    refuse_existing(options.trace, "--trace");
  }
  if (!options.predict.empty()) plan.predicts = profile_of_flag(options.predict, "--predict");
  if (options.replay_rank >= 0) {
    check_replay(plan.scenario, options.replay_rank);
    plan.devices.replay = {options.replay_rank, profile_of_flag(options.replay_cluster, "--replay-cluster")};
  }
  plan.one_device = !plan.place && backend_ranks(options.backend) > 0;
  for (const Experiment& experiment : plan.scenario.experiments) check_experiment(experiment, plan);
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

// Runs everything; `stepped` is called after every step. Another process than the root has nothing to tell.
Outcome run_all(const Plan& plan, bool trace, const std::function<void()>& stepped) {
  const std::string& file = plan.scenario.file;
  Outcome outcome{
      {plan.devices, plan.predicts ? std::optional(plan.predicts->name) : std::nullopt, plan.one_device}};
  for (const Experiment& experiment : plan.scenario.experiments) {
    for (const ScheduleChoice& choice : experiment.schedules) {
      if (experiment.run->skip_refused && refuses(choice, experiment, file)) {
        outcome.report.add_refused();
        for (int i = 0; i < steps_of(experiment); ++i) stepped();
        continue;
      }
      const std::optional<MeasuredRun> run = run_measured(choice, experiment, file, plan.devices,
                                                          plan.predicts ? &*plan.predicts : nullptr, stepped);
      if (!run) continue;  // the root has what this process measured
      outcome.rows.push_back(to_json(run->result));
      outcome.report.add(*run);
      if (!trace) continue;
      std::ostringstream text;
      write_chrome_trace(text, run->program, run->timeline, heading(outcome.rows.back()));
      outcome.trace = text.str();
    }
  }
  return outcome;
}

// The same, with all processes of the run where there are several.
Outcome run_together(Plan& plan, bool trace) {
  size_t steps = 0;
  for (const Experiment& experiment : plan.scenario.experiments)
    steps += experiment.schedules.size() * steps_of(experiment);
  RunGuard guard(std::chrono::duration<double>(plan.devices.deadline_s));
  std::optional<Rendezvous> processes;
  if (plan.place) plan.devices.processes = &processes.emplace(*plan.place, guard);
  try {
    std::optional<Progress> progress;
    if (plan.is_root()) progress.emplace("running " + plan.scenario.name, steps);
    Outcome outcome = run_all(plan, trace, [&] {
      if (progress) progress->step();
      check_interrupted();
    });
    if (processes) processes->end();
    return outcome;
  } catch (const Stopped&) {
    throw std::runtime_error(guard.failure());
  }
}

void print_report(const Plan& plan, const RunReport& report) {
  const auto& replay = plan.devices.replay;
  const std::string whose = replay ? "rank " + std::to_string(replay->rank) + " alone, among peers of " +
                                         replay->profile.name + "; bubbles"
                                   : "bubbles of the busiest rank";
  std::printf("%s (%s on %s; %s in the last step)\n%s", plan.scenario.title.c_str(),
              to_string(plan.evidence()).c_str(), plan.devices.backend.c_str(), whose.c_str(),
              report.text().c_str());
}

}  // namespace

void run_command(const RunOptions& options, const Invocation& invocation) {
  Plan plan = make_plan(options);
  Outcome outcome = run_together(plan, !options.trace.empty());
  if (!plan.is_root()) return;
  if (!options.trace.empty()) write_new_file(options.trace, outcome.trace);
  json record = make_record(plan.scenario.as_run(), plan.evidence(), invocation.argv, "results",
                            std::move(outcome.rows));
  const SharedJson accelerator = backend_facts(options.backend);
  record["system"]["accelerator"] = accelerator ? *accelerator : json();
  if (write_record(options.json, record)) print_report(plan, outcome.report);
  const std::string failure = outcome.report.failure();
  if (!failure.empty()) throw std::runtime_error(failure);
}

}  // namespace stp
