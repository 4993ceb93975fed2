#include "profile_simulation.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "baselines/registry.h"
#include "run_simulated.h"
#include "scenario.h"
#include "stp/base/data.h"
#include "stp/base/json_input.h"
#include "stp/cluster/profile_part.h"
#include "stp/report/compare.h"
#include "stp/report/machine_figures.h"
#include "stp/schedule/generator.h"
#include "table.h"

namespace stp {
namespace {

using nlohmann::json;

constexpr const char* kProfiles = "profiles";

struct Machine {
  HardwareProfile profile;
  SharedJson profile_json;  // as read, every value with its source
};

// A configuration of the scenarios, simulated on each machine.
struct ComparedConfiguration {
  Experiment experiment;
  std::string file;            // the file of its scenario
  std::set<size_t> scenarios;  // these scenarios have it
};

std::vector<Scenario> read_scenarios(const std::vector<std::string>& words) {
  std::vector<Scenario> scenarios;
  for (const std::string& word : words) {
    scenarios.push_back(read_scenario(word));
    for (const Experiment& experiment : scenarios.back().experiments)
      if (!experiment.hardware)
        throw InputError(scenarios.back().file, "model", "has no cluster, which could be replaced",
                         "name scenarios of a model on a cluster, such as llm-a800");
  }
  return scenarios;
}

// Reads the named profiles, or all of the suite. The first scenario's profile comes first.
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
    HardwareProfile profile = read_profile(file);
    for (const Machine& other : machines)
      if (other.profile.name == profile.name)
        throw InputError(file, "name", "\"" + profile.name + "\" is the name of two profiles",
                         "give each its own name");
    machines.push_back({std::move(profile), std::make_shared<const json>(read_json_file(file))});
  }
  if (machines.size() < 2)
    throw InputError("", "--profiles", "need at least two machines", "name two or more");
  return machines;
}

// Configurations are the same if they differ only in cluster, schedules and microbatches.
std::string configuration_key(const Experiment& experiment) {
  json key = to_json(experiment);
  for (const char* field : {"cluster", "schedules", "microbatches"}) key.erase(field);
  return json_text(key);
}

// Every configuration of the scenarios once, at its largest number of microbatches.
std::vector<ComparedConfiguration> gather(const std::vector<Scenario>& scenarios) {
  std::vector<ComparedConfiguration> configurations;
  std::map<std::string, size_t> index;
  for (size_t i = 0; i < scenarios.size(); ++i) {
    for (const Experiment& experiment : scenarios[i].experiments) {
      const auto [found, is_new] = index.try_emplace(configuration_key(experiment), configurations.size());
      if (is_new) configurations.push_back({experiment, scenarios[i].file, {}});
      ComparedConfiguration& known = configurations[found->second];
      if (experiment.microbatches > known.experiment.microbatches) {
        known.experiment = experiment;
        known.file = scenarios[i].file;
      }
      known.scenarios.insert(i);
    }
  }
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

json gain_of(const std::vector<Scenario>& scenarios) {
  for (const Scenario& scenario : scenarios)
    if (scenario.comparison && !scenario.comparison->gain_of.empty())
      return {{"of", scenario.comparison->gain_of}, {"over", scenario.comparison->gain_over}};
  return {{"of", "stp"}, {"over", "1f1b-i"}};
}

Experiment on_machine(const Experiment& experiment, const Machine& machine) {
  Experiment there = experiment;
  there.hardware->profile = machine.profile;
  there.hardware->cluster_data = {machine.profile.name, "", machine.profile_json};
  return there;
}

// The reason why the experiment cannot run on a machine; "" if it can.
std::string incompatibility(const Experiment& experiment, const HardwareProfile& profile) {
  if (experiment.strategy.tp <= profile.gpus_per_node) return "";
  return "TP" + std::to_string(experiment.strategy.tp) + " is more than the " +
         std::to_string(profile.gpus_per_node) + " GPUs of a node";
}

bool compatible(const Experiment& experiment, const HardwareProfile& profile) {
  return incompatibility(experiment, profile).empty();
}

// The GEMMs of a job on one rank.
json gemm_json(const std::vector<Machine>& machines, const Job& job) {
  json gemms = json::array();
  for (const Machine& machine : machines) {
    size_t i = 0;
    for (const GemmFigure& figure : gemm_figures(machine.profile, job.model, job.shape, job.implementation)) {
      if (&machine == &machines.front())
        gemms.push_back({{"of", to_string(figure.unit, figure.pass)},
                         {"m", figure.gemm.m},
                         {"n", figure.gemm.n},
                         {"k", figure.gemm.k}});
      gemms[i++]["seconds"].push_back(figure.seconds);
    }
  }
  return gemms;
}

// An all-reduce, alone and overlapped with the forward of either unit, from the simulation's costs.
json all_reduce_json(const std::vector<Machine>& machines, const Experiment& experiment, double bytes) {
  json figures;
  for (const Machine& machine : machines) {
    json seconds, share, behind_attn, behind_mlp;
    if (compatible(experiment, machine.profile)) {
      const Experiment there = on_machine(experiment, machine);
      // A layer's cost does not depend on its place.
      const CostTable table =
          hardware_cost_table(job_of(there), machine.profile, std::vector<int>(there.strategy.pp, 1),
                              Placement::loop(there.strategy.pp, 1));
      seconds = all_reduce_seconds(machine.profile, bytes, there.strategy.tp);
      if (const auto known = tp_communication_share(table)) share = *known;
      if (table.all_reduce > 0) {
        const auto exposed = [&](Unit unit) {
          return simulated_overlap(table.at(unit, UnitPass::F), table.all_reduce, contention_of(there))
              .exposed_share;
        };
        behind_attn = exposed(Unit::attn);
        behind_mlp = exposed(Unit::mlp);
      }
    }
    figures["seconds"].push_back(seconds);
    figures["tp_communication_share"].push_back(share);
    figures["exposed_behind_attn"].push_back(behind_attn);
    figures["exposed_behind_mlp"].push_back(behind_mlp);
  }
  figures["bytes"] = bytes;
  return figures;
}

// Simulates one configuration's schedules on many machines. Makes programs that do not depend on costs only
// once.
class ConfigurationSimulator {
 public:
  ConfigurationSimulator(const ComparedConfiguration& configuration,
                         const std::vector<ScheduleChoice>& choices)
      : configuration_(configuration), choices_(choices), programs_(choices.size()) {}

  // Throws InputError if the schedule refuses the configuration.
  Result run(size_t schedule, const Experiment& experiment) {
    return run_simulated(program(schedule, experiment), experiment).result;
  }

 private:
  Program program(size_t schedule, const Experiment& experiment) {
    const ScheduleChoice& choice = choices_[schedule];
    if (experiment.split == LayerSplit::balanced || is_by_times(experiment.braid) ||
        (choice.file.empty() && find_generator(choice.name).cost_aware))
      return program_for(choice, experiment, configuration_.file);
    if (!programs_[schedule]) programs_[schedule] = program_for(choice, experiment, configuration_.file);
    return *programs_[schedule];
  }

  const ComparedConfiguration& configuration_;
  const std::vector<ScheduleChoice>& choices_;
  std::vector<std::optional<Program>> programs_;  // programs that do not depend on costs
};

// Rows by schedule, then machine.
json rows_json(const ComparedConfiguration& configuration, const std::vector<Machine>& machines,
               size_t schedules, ConfigurationSimulator& simulator) {
  json rows = json::array();
  for (size_t schedule = 0; schedule < schedules; ++schedule) {
    for (const Machine& machine : machines) {
      const Experiment there = on_machine(configuration.experiment, machine);
      std::string refused = incompatibility(there, machine.profile);
      try {
        if (refused.empty()) rows.push_back(to_json(simulator.run(schedule, there)));
      } catch (const InputError& error) {
        refused = error.what();
      }
      if (!refused.empty()) rows.push_back({{"refused", refused}});
    }
  }
  attach_published(rows, data_path("results/published"), {});
  return rows;
}

// Throughputs by schedule; null for schedules that refuse the configuration.
json throughputs_json(const Experiment& experiment, size_t schedules, ConfigurationSimulator& simulator) {
  json of_schedules = json::array();
  for (size_t schedule = 0; schedule < schedules; ++schedule) {
    try {
      of_schedules.push_back(simulator.run(schedule, experiment).throughput().value_or(0));
    } catch (const InputError&) {
      of_schedules.push_back(nullptr);
    }
  }
  return of_schedules;
}

// By machine: throughputs with each ranged value of the profile at both ends of its range.
json varied_json(const Experiment& experiment, const std::vector<Machine>& machines, size_t schedules,
                 ConfigurationSimulator& simulator) {
  json varied = json::array();
  for (const Machine& machine : machines) {
    json& of_machine = varied.emplace_back(json::array());
    if (!compatible(experiment, machine.profile)) continue;
    for (const std::string& name : machine.profile.ranged) {
      json ends = json::array();
      for (const char* end : {"from", "to"}) {
        json content = *machine.profile_json;
        content[name]["value"] = content[name]["range"][end];
        const Machine there{read_profile(content, machine.profile.name), machine.profile_json};
        ends.push_back(throughputs_json(on_machine(experiment, there), schedules, simulator));
      }
      of_machine.push_back({{"value", name}, {"samples_per_s", ends}});
    }
  }
  return varied;
}

// Throughputs of `first` with every subset of the differing parts taken from `other`; null if a schedule
// refuses.
json mixtures_json(const Experiment& experiment, const Machine& first, const Machine& other, size_t schedules,
                   ConfigurationSimulator& simulator) {
  std::vector<ProfilePart> parts;
  json names = json::array(), throughputs = json::array();
  for (const ProfilePart part : kProfileParts) {
    if (same_part(first.profile, other.profile, part)) continue;
    parts.push_back(part);
    names.push_back(to_string(part));
  }
  for (size_t set = 0; set < size_t{1} << parts.size(); ++set) {
    Machine mixed = first;
    for (size_t i = 0; i < parts.size(); ++i)
      if ((set >> i & 1) != 0) take_part(mixed.profile, other.profile, parts[i]);
    throughputs.push_back(throughputs_json(on_machine(experiment, mixed), schedules, simulator));
  }
  return {{"machine", other.profile.name}, {"parts", names}, {"samples_per_s", throughputs}};
}

}  // namespace

json simulate_profiles(const ProfileSimulationOptions& options) {
  const std::vector<Scenario> scenarios = read_scenarios(options.scenarios);
  const std::vector<Machine> machines = read_machines(options.profiles, scenarios[0].experiments[0]);
  const std::vector<ScheduleChoice> choices = choose_schedules(options.schedules, scenarios);
  const std::vector<ComparedConfiguration> configurations = gather(scenarios);

  json result = {{"gain", gain_of(scenarios)}};
  for (const Scenario& scenario : scenarios) result["scenarios"].push_back(scenario.name);
  for (const ScheduleChoice& choice : choices) result["schedules"].push_back(name_of(choice));
  for (const Machine& machine : machines)
    result["machines"].push_back({{"name", machine.profile.name},
                                  {"fitted", machine.profile.fitted},
                                  {"profile", *machine.profile_json}});

  ProgressBar progress("simulating", configurations.size());
  for (const ComparedConfiguration& configuration : configurations) {
    const Experiment& experiment = configuration.experiment;
    const bool shared = configuration.scenarios.size() == scenarios.size();
    result["models"][experiment.hardware->model.name] = *experiment.hardware->model_data.content;
    ConfigurationSimulator simulator(configuration, choices);
    json mixtures = json::array();
    for (size_t i = 1; i < machines.size() && (shared || options.attribute_all); ++i)
      if (compatible(experiment, machines[0].profile) && compatible(experiment, machines[i].profile))
        mixtures.push_back(mixtures_json(experiment, machines[0], machines[i], choices.size(), simulator));
    const Job job = job_of(experiment);
    result["configurations"].push_back(
        {{"model", job.model.name},
         {"seq", job.shape.seq},
         {"microbatch_size", job.shape.microbatch_size},
         {"tp", experiment.strategy.tp},
         {"pp", experiment.strategy.pp},
         {"microbatches", experiment.microbatches},
         {"shared", shared},
         {"gemms", gemm_json(machines, job)},
         {"all_reduce", all_reduce_json(machines, experiment, hidden_bytes(job.model, job.shape))},
         {"rows", rows_json(configuration, machines, choices.size(), simulator)},
         {"varied", varied_json(experiment, machines, choices.size(), simulator)},
         {"mixtures", mixtures}});
    progress.step();
  }
  return result;
}

}  // namespace stp
