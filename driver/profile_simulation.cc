#include "profile_simulation.h"

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string_view>
#include <tuple>

#include "all_cores.h"
#include "baselines/registry.h"
#include "choices.h"
#include "compared_machines.h"
#include "interrupt.h"
#include "progress.h"
#include "run_simulated.h"
#include "scenario.h"
#include "stp/base/data.h"
#include "stp/base/json_input.h"
#include "stp/cluster/profile_part.h"
#include "stp/cost/attention.h"
#include "stp/cost/gemm.h"
#include "stp/cost/overlap.h"
#include "stp/report/compare.h"

namespace stp {
namespace {

using nlohmann::json;

// A configuration of the scenarios, simulated on each machine.
struct ComparedConfiguration {
  Experiment experiment;
  std::string file;            // the file of its scenario
  std::set<size_t> scenarios;  // these scenarios have it
};

std::vector<Scenario> read_scenarios(const std::vector<std::string>& words,
                                     const std::vector<std::string>& set) {
  for (const std::string& change : set)
    if (change.starts_with("cluster"))
      throw InputError("", "--set",
                       "\"" + change + "\" is of a cluster, and the machines are those of --profiles",
                       "name it there, or change a copy of the last one: --set cluster.peak_tflops=400");
  std::vector<Scenario> scenarios;
  for (const std::string& word : words) {
    say_differences(scenarios.emplace_back(read_scenario(word, Changes(set))));
    for (const Experiment& experiment : scenarios.back().experiments)
      if (!experiment.hardware)
        throw InputError(scenarios.back().file, "model", "has no cluster, which could be replaced",
                         "name scenarios of a model on a cluster, such as llm-a800");
  }
  return scenarios;
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

Experiment on_machine(const Experiment& experiment, const ComparedMachine& machine) {
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

// Every GEMM of one layer of a job, forward and backward, on one rank.
json gemm_json(const std::vector<ComparedMachine>& machines, const Job& job) {
  json gemms = json::array();
  for (const ComparedMachine& machine : machines) {
    size_t i = 0;
    for (const Unit unit : kLayerUnits)
      for (const UnitPass pass : kUnitPasses)
        for (const Gemm& gemm : work(job.model, job.shape, job.implementation, unit, pass).gemms) {
          if (&machine == &machines.front())
            gemms.push_back({{"of", to_string(unit, pass)}, {"m", gemm.m}, {"n", gemm.n}, {"k", gemm.k}});
          gemms[i++]["seconds"].push_back(gemm_seconds(machine.profile, gemm));
        }
  }
  return gemms;
}

// An all-reduce, alone and overlapped with the forward of either unit, from the simulation's costs.
json all_reduce_json(const std::vector<ComparedMachine>& machines, const Experiment& experiment,
                     double bytes) {
  json figures;
  for (const ComparedMachine& machine : machines) {
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

  // Samples per second alone, in half the time. Many values have no part in a configuration, so equal times
  // are simulated once. Costs that make another program show in the times of any.
  double throughput(size_t schedule, const Experiment& experiment) {
    const Program& any = first_program(schedule, experiment);
    const std::vector<double> times = op_seconds(any, cost_table_of(experiment, any));
    const Contention contention = contention_of(experiment);
    const std::string_view bytes(reinterpret_cast<const char*>(times.data()), times.size() * sizeof(double));
    // A balanced split of layers depends on the memory that tensors have.
    const HardwareProfile& profile = experiment.hardware->profile;
    const std::tuple key{schedule, std::hash<std::string_view>{}(bytes), contention.compute,
                         contention.all_reduce, profile.memory_bytes - profile.fixed_memory_bytes};
    const auto known = known_.find(key);
    if (known != known_.end()) return known->second;
    const auto simulated = [&](const Program& ops, const std::vector<double>& seconds) {
      return configuration_of(experiment, ops).samples() / timeline_of(ops, seconds, contention).step_s;
    };
    if (!depends_on_costs(schedule, experiment)) return known_[key] = simulated(any, times);
    const Program own = program(schedule, experiment);
    return known_[key] = simulated(own, op_seconds(own, cost_table_of(experiment, own)));
  }

 private:
  [[nodiscard]] bool depends_on_costs(size_t schedule, const Experiment& experiment) const {
    const ScheduleChoice& choice = choices_[schedule];
    return experiment.split == LayerSplit::balanced || is_by_times(experiment.braid) ||
           experiment.strategy.offload_chunks > 0 ||
           (choice.file.empty() && find_generator(choice.name).cost_aware);
  }

  const Program& first_program(size_t schedule, const Experiment& experiment) {
    if (!programs_[schedule])
      programs_[schedule] = program_for(choices_[schedule], experiment, configuration_.file);
    return *programs_[schedule];
  }

  Program program(size_t schedule, const Experiment& experiment) {
    return depends_on_costs(schedule, experiment)
               ? program_for(choices_[schedule], experiment, configuration_.file)
               : first_program(schedule, experiment);
  }

  const ComparedConfiguration& configuration_;
  const std::vector<ScheduleChoice>& choices_;
  std::vector<std::optional<Program>> programs_;  // the first of each schedule
  // Throughputs by schedule, hash of its ops' times, contention, and memory for tensors.
  std::map<std::tuple<size_t, size_t, double, double, double>, double> known_;
};

// What a machine's memory holds: all that is needed, the activations alone, or not even these.
const char* fits(const Result& result, const HardwareProfile& profile) {
  if (result.fits != Fit::no) return "all";
  return *result.peak_memory_gb() * 1e9 <= profile.memory_bytes ? "activations" : "nothing";
}

// Rows by schedule, then machine.
json rows_json(const ComparedConfiguration& configuration, const std::vector<ComparedMachine>& machines,
               size_t schedules, ConfigurationSimulator& simulator) {
  json rows = json::array();
  for (size_t schedule = 0; schedule < schedules; ++schedule) {
    for (const ComparedMachine& machine : machines) {
      const Experiment there = on_machine(configuration.experiment, machine);
      std::string refused = incompatibility(there, machine.profile);
      try {
        if (refused.empty()) {
          const Result result = simulator.run(schedule, there);
          rows.push_back(to_json(result));
          rows.back()["fits"] = fits(result, machine.profile);
        }
      } catch (const InputError& error) {
        refused = error.what();
      }
      if (!refused.empty()) rows.push_back({{"refused", refused}});
    }
  }
  attach_published(rows, data_path("results/published"), {});
  return rows;
}

// By schedule whether it is of interest.
using Wanted = std::vector<bool>;

// Throughputs by schedule; null for those that are not wanted or refuse the configuration.
json throughputs_json(const Experiment& experiment, const Wanted& wanted, ConfigurationSimulator& simulator) {
  json of_schedules = json::array();
  for (size_t schedule = 0; schedule < wanted.size(); ++schedule) {
    of_schedules.push_back(nullptr);
    try {
      if (wanted[schedule]) of_schedules.back() = simulator.throughput(schedule, experiment);
    } catch (const InputError&) {
      continue;
    }
  }
  return of_schedules;
}

// Throughputs with each uncertain value of a machine's profile at both ends.
json varied_json(const Experiment& experiment, const ComparedMachine& machine,
                 const std::vector<ComparedMachine>& machines, const Wanted& wanted,
                 ConfigurationSimulator& simulator) {
  json varied = json::array();
  if (!compatible(experiment, machine.profile)) return varied;
  for (const UncertainValue& uncertain : machine.profile.uncertain) {
    if (!is_varied(uncertain, machine, machines)) continue;
    json ends = json::array();
    for (const double end : {uncertain.from, uncertain.to}) {
      json content = *machine.profile_json;
      json& value = content[uncertain.name]["value"];
      value = value.is_number_integer() && end == std::floor(end) ? json(std::llround(end)) : json(end);
      const ComparedMachine there{read_profile(content, machine.profile.name), machine.profile_json,
                                  machine.file};
      ends.push_back(throughputs_json(on_machine(experiment, there), wanted, simulator));
    }
    varied.push_back({{"value", uncertain.name}, {"samples_per_s", ends}});
  }
  return varied;
}

// Throughputs of `first` with every subset of the differing parts taken from `other`.
json mixtures_json(const Experiment& experiment, const ComparedMachine& first, const ComparedMachine& other,
                   const Wanted& wanted, ConfigurationSimulator& simulator) {
  std::vector<ProfilePart> parts;
  json names = json::array(), throughputs = json::array();
  for (const ProfilePart part : kProfileParts) {
    if (same_part(first.profile, other.profile, part)) continue;
    parts.push_back(part);
    names.push_back(to_string(part));
  }
  for (size_t set = 0; set < size_t{1} << parts.size(); ++set) {
    ComparedMachine mixed = first;
    for (size_t i = 0; i < parts.size(); ++i)
      if ((set >> i & 1) != 0) take_part(mixed.profile, other.profile, parts[i]);
    throughputs.push_back(throughputs_json(on_machine(experiment, mixed), wanted, simulator));
  }
  return {{"machine", other.profile.name}, {"parts", names}, {"samples_per_s", throughputs}};
}

// TFLOP/s of a causal forward and backward of the longest sequence: with Transformer Engine's kernels, if all
// configurations have these.
json attention_json(HardwareProfile profile, const std::vector<ComparedConfiguration>& configurations) {
  double seq = 0;
  for (const ComparedConfiguration& each : configurations) {
    const Experiment::Hardware& hardware = *each.experiment.hardware;
    if (!uses_transformer_engine(hardware.implementation)) profile.attention_cudnn = {};
    seq = std::max(seq, double{1} * hardware.seq);
  }
  json rates;
  for (const bool backward : {false, true})
    rates.push_back(1e-12 * attention_rate(profile, {1, seq, seq, 1, true, backward}));
  return rates;
}

json machine_json(const ComparedMachine& machine, const std::vector<ComparedMachine>& machines,
                  const std::vector<ComparedConfiguration>& configurations) {
  json uncertain = json::array();
  for (const UncertainValue& one : machine.profile.uncertain)
    if (is_varied(one, machine, machines))
      uncertain.push_back({{"value", one.name}, {"from", one.from}, {"to", one.to}});
  return {{"name", machine.profile.name},
          {"fitted", machine.profile.fitted},
          {"assumed", machine.profile.assumed},
          {"uncertain", uncertain},
          {"attention_tflops", attention_json(machine.profile, configurations)},
          {"profile", *machine.profile_json}};
}

// Of the schedules that fit on both machines, the fastest on the first and the fastest on the other.
Wanted fastest_on_either(const json& rows, size_t schedules, size_t machines, size_t other) {
  const auto row = [&](size_t schedule, size_t machine) -> const json& {
    return rows[schedule * machines + machine];
  };
  const auto fits_on = [&](size_t schedule, size_t machine) {
    return row(schedule, machine).value("fits", "refused") == "all";
  };
  const auto throughput = [&](size_t schedule, size_t machine) {
    return row(schedule, machine).at("throughput_samples_per_s").get<double>();
  };
  Wanted wanted(schedules, false);
  for (const size_t machine : {size_t{0}, other}) {
    std::optional<size_t> best;
    for (size_t schedule = 0; schedule < schedules; ++schedule)
      if (fits_on(schedule, 0) && fits_on(schedule, other) &&
          (!best || throughput(schedule, machine) > throughput(*best, machine)))
        best = schedule;
    if (best) wanted[*best] = true;
  }
  return wanted;
}

json configuration_json(const ComparedConfiguration& configuration,
                        const std::vector<ComparedMachine>& machines,
                        const std::vector<ScheduleChoice>& choices, bool attributed) {
  const Experiment& experiment = configuration.experiment;
  ConfigurationSimulator simulator(configuration, choices);
  const json rows = rows_json(configuration, machines, choices.size(), simulator);
  const auto of_interest = [&](size_t machine, const std::set<std::string>& which) {
    Wanted wanted;
    for (size_t schedule = 0; schedule < choices.size(); ++schedule)
      wanted.push_back(which.contains(rows[schedule * machines.size() + machine].value("fits", "refused")));
    return wanted;
  };
  json varied = json::array(), mixtures = json::array();
  for (size_t i = 0; i < machines.size(); ++i)
    varied.push_back(
        varied_json(experiment, machines[i], machines, of_interest(i, {"all", "activations"}), simulator));
  for (size_t i = 1; i < machines.size(); ++i) {
    if (!compatible(experiment, machines[0].profile) || !compatible(experiment, machines[i].profile))
      continue;
    Wanted wanted(choices.size(), true);
    if (!attributed) wanted = fastest_on_either(rows, choices.size(), machines.size(), i);
    mixtures.push_back(mixtures_json(experiment, machines[0], machines[i], wanted, simulator));
  }
  const Job job = job_of(experiment);
  return {{"model", job.model.name},
          {"implementation", to_json(experiment).at("implementation")},
          {"seq", job.shape.seq},
          {"microbatch_size", job.shape.microbatch_size},
          {"tp", experiment.strategy.tp},
          {"pp", experiment.strategy.pp},
          {"microbatches", experiment.microbatches},
          {"gemms", gemm_json(machines, job)},
          {"all_reduce", all_reduce_json(machines, experiment, hidden_bytes(job.model, job.shape))},
          {"attributed", attributed},
          {"rows", rows},
          {"varied", varied},
          {"mixtures", mixtures}};
}

}  // namespace

json simulate_profiles(const ProfileSimulationOptions& options) {
  std::vector<std::string> of_scenarios, of_machine;
  for (const std::string& change : options.set)
    (change.starts_with("cluster.") ? of_machine : of_scenarios).push_back(change);
  const std::vector<Scenario> scenarios = read_scenarios(options.scenarios, of_scenarios);
  std::vector<ComparedMachine> machines =
      read_machines(options.profiles, scenarios[0].experiments[0].hardware->profile.name, of_machine);
  const std::vector<ScheduleChoice> choices = choose_schedules(options.schedules, scenarios);
  const std::vector<ComparedConfiguration> configurations = gather(scenarios);
  if (std::ranges::any_of(configurations, [](const ComparedConfiguration& one) {
        return uses_transformer_engine(one.experiment.hardware->implementation);
      }))
    for (const ComparedMachine& machine : machines)
      say_overridden_attention(*machine.profile_json, machine.file);

  json result = {{"gain", gain_of(scenarios)}, {"without_fixed_memory", level_fixed_memory(machines)}};
  for (const Scenario& scenario : scenarios) result["scenarios"].push_back(scenario.name);
  for (const ScheduleChoice& choice : choices) result["schedules"].push_back(name_of(choice));
  for (const ComparedMachine& machine : machines)
    result["machines"].push_back(machine_json(machine, machines, configurations));
  for (const ComparedConfiguration& configuration : configurations) {
    const auto& hardware = *configuration.experiment.hardware;
    result["models"][hardware.model.name] = *hardware.model_data.content;
  }

  std::set<std::string> implementations;
  for (const ComparedConfiguration& configuration : configurations)
    implementations.insert(word_of(configuration.experiment.hardware->implementation, kImplementations));
  result["kernels"] = kernels_text(implementations);
  result["at_best_rate"] = json::array();
  for (const ComparedMachine& machine : machines)
    if (at_best_rate(*machine.profile_json)) result["at_best_rate"].push_back(machine.profile.name);

  std::vector<json> lines(configurations.size());
  ProgressBar progress("simulating", configurations.size());
  on_all_cores(configurations.size(), [&](size_t i) {
    const bool shared = configurations[i].scenarios.size() == scenarios.size();
    lines[i] = configuration_json(configurations[i], machines, choices, shared && options.attribute_shared);
    lines[i]["shared"] = shared;
    progress.step();
  });
  check_interrupted();
  result["configurations"] = lines;
  return result;
}

}  // namespace stp
