// Hardware profiles side by side: what each machine makes of the pieces of a model, of whole schedules, and
// which of its properties makes the difference. All of it is simulated.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "run_simulated.h"
#include "scenario.h"

namespace stp {

struct ProfileComparisonOptions {
  std::vector<std::string> profiles;  // names or files; empty: all of the suite
  std::vector<std::string>
      scenarios;  // whose configurations, at their largest m; the first one's cluster leads
  std::vector<std::string> schedules;  // empty: those of the scenarios
  bool attribute_all = false;          // every configuration, not only those that all scenarios share
};

/// As results/schema/comparison.schema.json has it under kind `profiles`. InputError for profiles, scenarios
/// and schedules that cannot be compared.
nlohmann::json compare_profiles(const ProfileComparisonOptions& options);

// What its parts share:

struct Machine {
  std::string name;
  HardwareProfile profile;
  nlohmann::json profile_json;  // as read, every value with its source
};

/// A configuration of the scenarios, to be put onto each machine.
struct ComparedConfiguration {
  Experiment experiment;
  std::string file;     // its scenario's
  bool shared = false;  // whether every scenario has it
};

/// The experiment on another machine.
Experiment on_machine(const Experiment& experiment, const Machine& machine);
/// Why it cannot be there; "" if it can.
std::string misfit(const Experiment& experiment, const HardwareProfile& profile);
/// What the configuration consists of, for records.
nlohmann::json configuration_json(const Experiment& experiment);

/// Simulates one configuration's schedules on many machines. Programs that no cost changes are made once.
class ConfigurationSimulator {
 public:
  ConfigurationSimulator(const ComparedConfiguration& configuration,
                         const std::vector<ScheduleChoice>& choices)
      : configuration_(configuration), choices_(choices), programs_(choices.size()) {}

  /// InputError if the schedule refuses the configuration.
  SimulatedRun run(size_t schedule, const Experiment& experiment);
  double throughput(size_t schedule, const Experiment& experiment);

 private:
  Program program(size_t schedule, const Experiment& experiment);

  const ComparedConfiguration& configuration_;
  const std::vector<ScheduleChoice>& choices_;
  std::vector<std::optional<Program>> programs_;  // of schedules whose order no cost changes
};

/// Products, all-reduces and both at once, of every shape that the configurations have: fields `gemm`,
/// `all_reduce` and `overlap`.
nlohmann::json piece_figures(const std::vector<Machine>& machines,
                             const std::vector<ComparedConfiguration>& configurations);

/// Which schedule's gain over which other is asked for.
struct GainQuestion {
  std::string of, over;
};
/// Gains from throughputs by schedule: over `over`, and over the best of all others; none where one is
/// missing.
struct Gains {
  std::optional<double> over_baseline, over_best;
  std::string best;
};
Gains gains_of(const std::vector<std::string>& schedules,
               const std::vector<std::optional<double>>& throughputs, const GainQuestion& question);

/// How the step from the first machine to another moves throughputs and gains of one configuration, taken
/// apart by properties: one entry of field `attribution`.
nlohmann::json attribute(const Machine& from, const Machine& to, const ComparedConfiguration& configuration,
                         const std::vector<std::string>& schedules, const GainQuestion& question,
                         ConfigurationSimulator& simulator);

}  // namespace stp
