#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <variant>
#include <vector>

#include "commands.h"
#include "comparison_table.h"
#include "finished_rows.h"
#include "interrupt.h"
#include "output_folder.h"
#include "overlap_pairs.h"
#include "run_python.h"
#include "run_simulated.h"
#include "stp/base/data.h"
#include "stp/base/error.h"
#include "stp/base/json_input.h"
#include "table.h"

namespace stp {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

using AnyScenario = std::variant<Scenario, PairsScenario>;

AnyScenario read_any_scenario(const std::string& word, const ScenarioOptions& options) {
  const Changes changes(options.set);
  if (is_pairs_scenario(word)) return read_pairs_scenario(word, changes);
  Scenario scenario = read_scenario(word, changes, options.invalid());
  say_differences(scenario);
  return scenario;
}

// Simulates all of a scenario, writes its record and timelines, prints its table, and returns its line of the
// summary.
json reproduce_scenario(const PairsScenario& scenario, const fs::path& folder, const Arguments& argv,
                        FinishedRows& /*fast*/) {
  const json record =
      make_record(scenario.as_run(), Evidence::simulated, argv, "pairs", simulate_pairs(scenario));
  write_new_file(folder / (scenario.name + ".json"), record_text(record));
  json line = summarise_pairs(scenario, record);
  std::printf("\n%s (%s)\n%s", scenario.title.c_str(), to_string(Evidence::simulated).c_str(),
              pairs_table(record.at("pairs"), line).c_str());
  return line;
}

json reproduce_scenario(const Scenario& scenario, const fs::path& folder, const Arguments& argv,
                        FinishedRows& kept) {
  json rows = json::array();
  OptionColumns options = columns_of_comparison();
  simulate_rows(
      scenario,
      [&](const std::optional<SimulatedRun>& run, const Experiment& experiment,
          const ScheduleChoice& choice) {
        rows.push_back(run ? to_json(run->result) : kept.find(experiment, choice));
        options.add(experiment, choice);
        if (scenario.timeline)
          write_trace(
              unused_path(folder, "timeline-" + scenario.name + "-" + file_word(rows.back()), ".json"), *run);
        else if (run)
          kept.keep(experiment, choice, {}, rows.back());
      },
      [&](const Experiment& experiment, const ScheduleChoice& choice) {
        return !scenario.timeline && !kept.find(experiment, choice).is_null();
      });
  attach_published(rows, data_path("results/published"), scenario.comparison);
  attach_gains(rows, scenario.comparison);
  const json record = make_record(scenario.as_run(), Evidence::simulated, argv, "rows", rows);
  write_new_file(folder / (scenario.name + ".json"), record_text(record));

  std::printf("\n%s (%s)\n%s", scenario.title.c_str(), to_string(Evidence::simulated).c_str(),
              comparison_table(rows, options).c_str());
  return summarise(scenario.name, record, scenario.comparison);
}

json reproduce_timed(const AnyScenario& scenario, const fs::path& folder, const Arguments& argv,
                     FinishedRows& kept) {
  const auto begin = std::chrono::steady_clock::now();
  json line = std::visit(
      [&](const auto& any) {
        try {
          return reproduce_scenario(any, folder, argv, kept);
        } catch (const InputError& error) {
          throw error.in_file(any.file);
        }
      },
      scenario);
  const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - begin;
  line["wall_s"] = std::round(wall.count() * 1000) / 1000;
  return line;
}

}  // namespace

void reproduce_command(const ReproduceOptions& options, const Arguments& argv) {
  // Two runs of one second have the same name.
  OutputFolder folder(options.out.empty() ? new_run_folder("") : fs::path(options.out),
                      options.out.empty() ? OutputFolder::Taken::number : OutputFolder::Taken::refuse);
  // Reads all scenarios before the first runs, so that all their errors are reported at once.
  std::vector<AnyScenario> scenarios;
  std::vector<std::string> names;
  for (const std::string& word : options.scenarios.empty() ? suite_scenarios() : options.scenarios) {
    scenarios.push_back(read_any_scenario(word, options.reading));
    const auto& [file, name] =
        std::visit([](const auto& any) { return std::pair(any.file, any.name); }, scenarios.back());
    if (name == "summary") throw InputError(file, "name", "is reserved for the summary", "use another name");
    if (std::ranges::find(names, name) != names.end())
      throw InputError(file, "name", "\"" + name + "\" is the name of two scenarios",
                       "give each its own name: results are named after them");
    names.push_back(name);
  }
  json experiments = json::array();
  FinishedRows kept(options.out);
  std::optional<PythonProcess> drawing;  // draws each experiment as soon as it is there
  std::exception_ptr unplotted;          // the records stay
  try {
    if (!options.no_plots) {
      drawing.emplace("plots/report.py", Arguments{"--follow", folder.path().string()}, "pass --no-plots");
      drawing->send_line(json_text(names));
    }
  } catch (const InputError&) {
    unplotted = std::current_exception();
  }
  const auto stop = [&] {
    drawing.reset();
    const std::string go_on = kept.how_to_go_on();
    if (!kept.path().empty() && !go_on.empty()) throw Interrupted(go_on);  // which writes all records
    folder.publish_interrupted(go_on);
  };
  try {
    for (const AnyScenario& scenario : scenarios) {
      experiments.push_back(reproduce_timed(scenario, folder.path(), argv, kept));
      if (drawing) drawing->send_line(json_text(experiments.back()));
    }
    check_interrupted();
  } catch (const Interrupted&) {
    stop();
  } catch (const InputError& error) {
    throw kept.refused(error);
  }
  write_new_file(folder.path() / "summary.json",
                 record_text({{"schema_version", "1.6.0"}, {"experiments", experiments}}));
  try {
    if (drawing && drawing->wait() != 0)
      unplotted = std::make_exception_ptr(
          std::runtime_error("plots/report.py failed: the records are there, but not all plots"));
  } catch (const Interrupted&) {
    stop();
  }
  folder.publish();
  kept.remove();
  std::printf("\nMean absolute errors over predicted rows\n%s", summary_table(experiments).c_str());
  std::printf("\nResults%s: %s\n", options.no_plots || unplotted ? "" : ", plots and report.html",
              folder.target().c_str());
  if (unplotted) std::rethrow_exception(unplotted);
}

}  // namespace stp
