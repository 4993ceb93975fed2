#include "profile_comparison.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "baselines/registry.h"
#include "stp/base/data.h"
#include "stp/base/json_input.h"
#include "stp/report/compare.h"
#include "stp/schedule/generator.h"
#include "table.h"

namespace stp {
namespace {

using nlohmann::json;

constexpr const char* kProfiles = "profiles";

std::vector<Scenario> read_scenarios(const std::vector<std::string>& words) {
  std::vector<Scenario> scenarios;
  for (const std::string& word : words) {
    scenarios.push_back(read_scenario(word));
    for (const Experiment& experiment : scenarios.back().experiments)
      if (!experiment.hardware)
        throw InputError(scenarios.back().file, "model", "is of no cluster, which could be another's",
                         "name scenarios of a model on a cluster, such as llm-a800");
  }
  return scenarios;
}

// The profiles named, or all of the suite, that of the first scenario first.
std::vector<Machine> read_machines(const std::vector<std::string>& named, const Experiment& first) {
  std::vector<std::string> words = named;
  if (words.empty()) {
    for (const auto& entry : std::filesystem::directory_iterator(data_path(kProfiles)))
      if (entry.path().extension() == ".json") words.push_back(entry.path().stem());
    std::sort(words.begin(), words.end());
    const auto leading = std::find(words.begin(), words.end(), first.hardware->profile.name);
    if (leading != words.end()) std::rotate(words.begin(), leading, leading + 1);
  }
  std::vector<Machine> machines;
  for (const std::string& word : words) {
    const std::string file = find_data_file(word, kProfiles, "", "--profiles");
    Machine machine{"", read_profile(file), read_json_file(file)};
    machine.name = machine.profile.name;
    for (const Machine& other : machines)
      if (other.name == machine.name)
        throw InputError(file, "name", "\"" + machine.name + "\" is the name of two profiles",
                         "name them apart");
    machines.push_back(std::move(machine));
  }
  if (machines.size() < 2)
    throw InputError("", "--profiles", "one machine is nothing to compare", "name two or more");
  return machines;
}

// Configurations are the same where they differ in cluster, schedules and microbatches alone.
std::string configuration_key(const Experiment& experiment) {
  json key = experiment.as_run;
  for (const char* field : {"cluster", "schedules", "microbatches"}) key.erase(field);
  return key.dump();
}

// Every configuration of the scenarios once, at its largest number of microbatches.
std::vector<ComparedConfiguration> gather(const std::vector<Scenario>& scenarios) {
  std::vector<ComparedConfiguration> configurations;
  std::vector<std::set<const Scenario*>> had_by;
  std::map<std::string, size_t> place;
  for (const Scenario& scenario : scenarios) {
    for (const Experiment& experiment : scenario.experiments) {
      const auto [found, is_new] = place.try_emplace(configuration_key(experiment), configurations.size());
      if (is_new) {
        configurations.push_back({experiment, scenario.file, false});
        had_by.emplace_back();
      }
      ComparedConfiguration& known = configurations[found->second];
      if (experiment.microbatches > known.experiment.microbatches) known = {experiment, scenario.file, false};
      had_by[found->second].insert(&scenario);
    }
  }
  for (size_t i = 0; i < configurations.size(); ++i)
    configurations[i].shared = had_by[i].size() == scenarios.size();
  return configurations;
}

std::vector<ScheduleChoice> choose_schedules(const std::vector<std::string>& named,
                                             const std::vector<Scenario>& scenarios) {
  std::vector<ScheduleChoice> choices;
  const auto add = [&](const ScheduleChoice& choice) {
    for (const ScheduleChoice& other : choices)
      if (name_of(other) == name_of(choice)) return;
    choices.push_back(choice);
  };
  for (const std::string& name : named) {
    try {
      find_generator(name);
    } catch (const InputError& error) {
      throw error.in_field("--schedules");
    }
    add({name, "", 0});
  }
  if (named.empty())
    for (const Scenario& scenario : scenarios)
      for (const Experiment& experiment : scenario.experiments)
        for (const ScheduleChoice& choice : experiment.schedules) add(choice);
  return choices;
}

GainQuestion ask_gain(const std::vector<Scenario>& scenarios) {
  for (const Scenario& scenario : scenarios)
    if (scenario.comparison && !scenario.comparison->gain_of.empty())
      return {scenario.comparison->gain_of, scenario.comparison->gain_over};
  return {"stp", "1f1b-i"};
}

json machine_json(const Machine& machine) {
  const HardwareProfile& p = machine.profile;
  constexpr double kTera = 1e12, kGiga = 1e9, kMicro = 1e-6;
  const auto source = [&](const char* key) { return machine.profile_json.at(key).at("source"); };
  return {{"name", machine.name},
          {"accelerator", p.accelerator},
          {"peak_tflops", p.peak_flops / kTera},
          {"attention_forward_tflops", p.peak_flops * p.attention_forward_efficiency / kTera},
          {"attention_backward_tflops", p.peak_flops * p.attention_backward_efficiency / kTera},
          {"memory_gb_per_s", p.memory_bytes_per_s / kGiga},
          {"memory_gb", p.memory_bytes / kGiga},
          {"gpus_per_node", p.gpus_per_node},
          {"p2p_within_node_gb_per_s", p.within_node.bytes_per_s / kGiga},
          {"p2p_between_nodes_gb_per_s", p.between_nodes.bytes_per_s / kGiga},
          {"kernel_overhead_us", p.kernel_overhead_s / kMicro},
          {"contention_compute", p.contention_compute},
          {"contention_all_reduce", p.contention_all_reduce},
          {"contention_source", source("contention_compute")},
          {"fitted", p.fitted},
          {"fitted_to", p.fitted_to.empty() ? json(nullptr) : json(p.fitted_to)}};
}

// A result as a cell, with what it needs of the machine's memory.
json cell_of(const Result& result, const HardwareProfile& profile) {
  double needed = 0, activations = 0;
  for (const RankResult& rank : result.ranks) {
    const RankResult::Memory& memory = *rank.memory;
    activations = std::max(activations, memory.activations);
    needed = std::max(needed, memory.activations + memory.weights + memory.gradients + memory.optimizer);
  }
  const char* fits = needed <= profile.memory_bytes        ? "all"
                     : activations <= profile.memory_bytes ? "activations"
                                                           : "nothing";
  const auto throughput = result.throughput();
  return {{"throughput_samples_per_s", throughput ? json(*throughput) : json(nullptr)},
          {"mfu", result.mfu ? json(*result.mfu) : json(nullptr)},
          {"activation_memory_gb", activations / 1e9},
          {"needed_memory_gb", needed / 1e9},
          {"fits", fits}};
}

// The throughputs that the paper prints of this configuration, by schedule and machine; its figures' rows are
// in `rows` as [schedule][machine].
void add_published(json& line) {
  json rows = json::array();
  for (json& schedule : line.at("schedules"))
    for (json& cell : schedule.at("cells"))
      rows.push_back(cell.contains("row") ? cell.at("row") : json::object());
  attach_published(rows, data_path("results/published"), {});
  size_t i = 0;
  for (json& schedule : line.at("schedules")) {
    for (json& cell : schedule.at("cells")) {
      const json& published = rows.at(i++).at("published");
      cell.erase("row");
      if (!cell.contains("refused"))
        cell["published_samples_per_s"] =
            published.is_object() ? published.value("throughput_samples_per_s", json()) : json();
    }
  }
}

std::optional<double> throughput_in(const json& cell, const char* key) {
  const auto found = cell.find(key);
  if (found == cell.end() || !found->is_number()) return std::nullopt;
  return found->get<double>();
}

// Gains on each machine, ours and the paper's.
json gains_json(const json& line, const std::vector<std::string>& schedules, size_t machines,
                const GainQuestion& question) {
  json gains = json::array();
  for (size_t machine = 0; machine < machines; ++machine) {
    std::vector<std::optional<double>> ours, theirs;
    for (const json& schedule : line.at("schedules")) {
      ours.push_back(throughput_in(schedule.at("cells")[machine], "throughput_samples_per_s"));
      theirs.push_back(throughput_in(schedule.at("cells")[machine], "published_samples_per_s"));
    }
    const Gains told = gains_of(schedules, ours, question), published = gains_of(schedules, theirs, question);
    const auto or_null = [](const std::optional<double>& value) {
      return value ? json(*value) : json(nullptr);
    };
    gains.push_back({{"over_baseline", or_null(told.over_baseline)},
                     {"over_best", or_null(told.over_best)},
                     {"best", told.best.empty() ? json(nullptr) : json(told.best)},
                     {"published_over_baseline", or_null(published.over_baseline)}});
  }
  return gains;
}

}  // namespace

Experiment on_machine(const Experiment& experiment, const Machine& machine) {
  Experiment there = experiment;
  there.hardware->profile = machine.profile;
  there.hardware->profile_json = machine.profile_json;
  there.as_run["cluster"] = machine.name;
  return there;
}

std::string misfit(const Experiment& experiment, const HardwareProfile& profile) {
  if (experiment.tp <= profile.gpus_per_node) return "";
  return "TP" + std::to_string(experiment.tp) + " is more than the " + std::to_string(profile.gpus_per_node) +
         " GPUs of a node";
}

json configuration_json(const Experiment& experiment) {
  return {{"model", experiment.hardware->model.name},
          {"seq", experiment.hardware->seq},
          {"microbatch_size", experiment.microbatch_size},
          {"tp", experiment.tp},
          {"pp", experiment.pp},
          {"microbatches", experiment.microbatches}};
}

Program ConfigurationSimulator::program(size_t schedule, const Experiment& experiment) {
  const ScheduleChoice& choice = choices_[schedule];
  if (!choice.file.empty() || !find_generator(choice.name).cost_aware) {
    if (!programs_[schedule]) programs_[schedule] = program_for(choice, experiment, configuration_.file);
    return *programs_[schedule];
  }
  return program_for(choice, experiment, configuration_.file);
}

SimulatedRun ConfigurationSimulator::run(size_t schedule, const Experiment& experiment) {
  return run_simulated(program(schedule, experiment), experiment);
}

double ConfigurationSimulator::throughput(size_t schedule, const Experiment& experiment) {
  return run(schedule, experiment).result.throughput().value_or(0);
}

Gains gains_of(const std::vector<std::string>& schedules,
               const std::vector<std::optional<double>>& throughputs, const GainQuestion& question) {
  Gains gains;
  std::optional<double> own, baseline, best;
  for (size_t i = 0; i < schedules.size(); ++i) {
    if (!throughputs[i]) continue;
    if (schedules[i] == question.of) {
      own = throughputs[i];
      continue;
    }
    if (schedules[i] == question.over) baseline = throughputs[i];
    if (!best || *throughputs[i] > *best) {
      best = throughputs[i];
      gains.best = schedules[i];
    }
  }
  if (own && baseline) gains.over_baseline = *own / *baseline - 1;
  if (own && best) gains.over_best = *own / *best - 1;
  if (!gains.over_best) gains.best.clear();
  return gains;
}

json compare_profiles(const ProfileComparisonOptions& options) {
  const std::vector<Scenario> scenarios = read_scenarios(options.scenarios);
  const std::vector<Machine> machines = read_machines(options.profiles, scenarios[0].experiments[0]);
  const std::vector<ScheduleChoice> choices = choose_schedules(options.schedules, scenarios);
  const std::vector<ComparedConfiguration> configurations = gather(scenarios);
  const GainQuestion question = ask_gain(scenarios);
  std::vector<std::string> schedules;
  for (const ScheduleChoice& choice : choices) schedules.push_back(name_of(choice));

  json comparison = {{"kind", "profiles"},
                     {"evidence", to_string(Evidence::simulated)},
                     {"gain", {{"of", question.of}, {"over", question.over}}},
                     {"schedules", schedules},
                     {"machines", json::array()},
                     {"throughput", json::array()},
                     {"attribution", json::array()}};
  for (const Scenario& scenario : scenarios) comparison["scenarios"].push_back(scenario.name);
  for (const Machine& machine : machines) {
    comparison["machines"].push_back(machine_json(machine));
    comparison["clusters"][machine.name] = machine.profile_json;
  }
  comparison.update(piece_figures(machines, configurations));

  Progress progress("simulating", configurations.size());
  for (const ComparedConfiguration& configuration : configurations) {
    const Experiment& experiment = configuration.experiment;
    comparison["models"][experiment.hardware->model.name] = experiment.hardware->model_json;
    ConfigurationSimulator simulator(configuration, choices);
    json line = {{"configuration", configuration_json(experiment)}, {"shared", configuration.shared}};
    for (size_t schedule = 0; schedule < choices.size(); ++schedule) {
      json cells = json::array();
      for (const Machine& machine : machines) {
        const Experiment there = on_machine(experiment, machine);
        if (const std::string why = misfit(there, machine.profile); !why.empty()) {
          cells.push_back({{"refused", why}});
          continue;
        }
        try {
          const Result result = simulator.run(schedule, there).result;
          cells.push_back(cell_of(result, machine.profile));
          cells.back()["row"] = to_json(result);
        } catch (const InputError& error) {
          cells.push_back({{"refused", error.what()}});
        }
      }
      line["schedules"].push_back({{"schedule", schedules[schedule]}, {"cells", cells}});
    }
    add_published(line);
    line["gains"] = gains_json(line, schedules, machines.size(), question);
    comparison["throughput"].push_back(line);
    if (configuration.shared || options.attribute_all)
      for (size_t to = 1; to < machines.size(); ++to)
        if (json parts = attribute(machines[0], machines[to], configuration, schedules, question, simulator);
            !parts.is_null()) {
          const json& gains = line["gains"];
          parts["published_gain_from"] = gains[0].at("published_over_baseline");
          parts["published_gain_to"] = gains[to].at("published_over_baseline");
          comparison["attribution"].push_back(parts);
        }
    progress.step();
  }
  return comparison;
}

}  // namespace stp
