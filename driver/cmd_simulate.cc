#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "commands.h"
#include "comparison_table.h"
#include "output_folder.h"
#include "overlap_pairs.h"
#include "run_simulated.h"
#include "table.h"

namespace stp {
namespace {

void simulate_pairs_command(const SimulateOptions& options, const Invocation& invocation) {
  const PairsScenario scenario = read_pairs_scenario(options.scenario, Changes(options.reading.set));
  refuse_existing(options.json, "--json");
  const nlohmann::json record =
      make_record(scenario.as_run(), Evidence::simulated, invocation.argv, "pairs", simulate_pairs(scenario));
  if (!write_record(options.json, record)) return;
  std::printf("%s (simulated)\n%s", scenario.title.c_str(),
              pairs_table(record.at("pairs"), summarise_pairs(scenario, record)).c_str());
}

// The largest of a rank, and whether it is within its GPU's memory.
struct Fit {
  std::optional<double> needed_gb, gpu_gb;  // none under unit costs

  [[nodiscard]] std::string text() const {
    return needed_gb && gpu_gb ? (*needed_gb <= *gpu_gb ? "yes" : "no") : "–";
  }
};

Fit fit_of(const Result& result, const Experiment& experiment) {
  if (!experiment.hardware) return {};
  return {result.peak_total_gb(), experiment.hardware->profile.memory_bytes / 1e9};
}

struct Row {
  Result result;
  Fit fit;
};

std::vector<Row> simulate_all(const Scenario& scenario) {
  std::vector<Row> rows;
  simulate_rows(scenario, [&](SimulatedRun run, const Experiment& experiment) {
    const Fit fit = fit_of(run.result, experiment);
    rows.push_back({std::move(run.result), fit});
  });
  return rows;
}

// Of the columns, where one for context parallelism is inserted if a configuration has it.
constexpr int kCpColumn = 5;

std::vector<std::string> cells_of(const Result& result, const Fit& fit) {
  const Configuration& c = result.configuration;
  const RankResult& busiest = result.busiest_rank();
  const double step = result.step_time_s();
  const auto share = [&](double seconds) {
    return share_text(step > 0 ? std::optional(seconds / step) : std::nullopt);
  };
  return {result.schedule,
          c.model.empty() ? "unit costs" : c.model,
          c.seq > 0 ? std::to_string(c.seq) : "–",
          std::to_string(c.tp),
          std::to_string(c.pp),
          std::to_string(c.dp),
          std::to_string(c.microbatches),
          fixed(step, 4),
          fixed(result.throughput(), 3),
          share(busiest.pp_bubble_s),
          share(busiest.tp_bubble_s),
          std::to_string(result.peak_activation_chunks()),
          fixed(result.peak_memory_gb(), 1),
          fixed(fit.needed_gb, 1),
          fixed(fit.gpu_gb, 0),
          fit.text()};
}

// What a user of offload asks next, in one sentence; empty where nothing is offloaded.
std::string offload_note(const std::vector<Row>& rows, bool named) {
  std::string parts;
  for (const auto& [result, fit] : rows) {
    if (!result.offload_ratio_bound) continue;
    const double bound = std::floor(100 * *result.offload_ratio_bound) / 100;  // which users may then choose
    const double ratio = result.configuration.offload_ratio;
    parts += (parts.empty() ? "" : "; ") + (named ? result.configuration.name + ", " : "") + result.schedule +
             " " + fixed(bound, 2) + " (chosen: " + fixed(ratio, 2) +
             (ratio > *result.offload_ratio_bound ? ", which exceeds it)" : ")");
  }
  if (parts.empty()) return "";
  return "Largest offload ratio with which a copy to the host takes no longer than a forward of the "
         "warm-up: " +
         parts + ".\n";
}

}  // namespace

void simulate_command(const SimulateOptions& options, const Invocation& invocation) {
  if (is_pairs_scenario(options.scenario)) return simulate_pairs_command(options, invocation);
  const Scenario scenario =
      read_scenario(options.scenario, Changes(options.reading.set), options.reading.invalid());
  refuse_existing(options.json, "--json");
  nlohmann::json rows = nlohmann::json::array();
  const std::vector<Row> simulated = simulate_all(scenario);
  const auto of_model = [](const Row& row) { return !row.result.configuration.model.empty(); };
  const std::string unit = std::all_of(simulated.begin(), simulated.end(), of_model)    ? "s"
                           : std::none_of(simulated.begin(), simulated.end(), of_model) ? "unit"
                                                                                        : "s or unit";
  std::vector<std::string> head{"schedule",
                                "model",
                                "seq",
                                "tp",
                                "pp",
                                "dp",
                                "m",
                                "step, " + unit,
                                "samples/" + unit,
                                "PP bubble",
                                "TP bubble",
                                "peak chunks",
                                "activations, GB",
                                "all, GB",
                                "GPU, GB",
                                "fits"};
  const bool named = scenario.named(), with_cp = scenario.context_parallel();
  if (with_cp) head.insert(head.begin() + kCpColumn, "cp");
  if (named) head.insert(head.begin(), "name");
  Table table(head);
  for (const auto& [result, fit] : simulated) {
    rows.push_back(to_json(result));
    std::vector<std::string> cells = cells_of(result, fit);
    if (with_cp) cells.insert(cells.begin() + kCpColumn, result.configuration.cp_text());
    if (named) cells.insert(cells.begin(), result.configuration.name);
    table.add(std::move(cells));
  }
  if (!write_record(options.json, make_record(scenario.as_run(), Evidence::simulated, invocation.argv,
                                              "results", std::move(rows))))
    return;
  std::printf("%s (simulated; bubbles of the busiest rank, memory of the fullest)\n%s%s",
              scenario.title.c_str(), table.text().c_str(), offload_note(simulated, named).c_str());
}

}  // namespace stp
