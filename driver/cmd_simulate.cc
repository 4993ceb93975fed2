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
#include "varying_fields.h"

namespace stp {
namespace {

void simulate_pairs_command(const SimulateOptions& options, const Arguments& argv) {
  const PairsScenario scenario = read_pairs_scenario(options.scenario, Changes(options.reading.set));
  refuse_existing(options.json, "--json");
  const nlohmann::json record =
      make_record(scenario.as_run(), Evidence::simulated, argv, "pairs", simulate_pairs(scenario));
  if (!write_record(options.json, record)) return;
  std::printf("%s (simulated)\n%s", scenario.title.c_str(),
              pairs_table(record.at("pairs"), summarise_pairs(scenario, record)).c_str());
}

std::vector<std::string> cells_of(const Result& result, const Experiment& experiment) {
  const Configuration& c = result.configuration;
  const RankResult& busiest = result.busiest_rank();
  const double step = result.step_time_s();
  const auto share = [&](double seconds) {
    return share_text(step > 0 ? std::optional(seconds / step) : std::nullopt);
  };
  const auto margin = result.memory_margin_gb;
  std::optional<double> tokens;  // a second and GPU
  if (c.seq > 0 && result.throughput()) tokens = *result.throughput() * c.seq / c.strategy.world_size();
  return {result.schedule,
          c.model.empty() ? "unit costs" : c.model,
          c.seq > 0 ? std::to_string(c.seq) : "–",
          std::to_string(c.strategy.tp),
          std::to_string(c.strategy.pp),
          std::to_string(c.strategy.dp),
          std::to_string(c.microbatches),
          fixed(step, 4),
          fixed(result.throughput(), 3),
          tokens ? fixed(*tokens, 0) : "–",
          share_text(result.mfu),
          share(busiest.pp_bubble_s),
          share(busiest.tp_bubble_s),
          std::to_string(result.peak_activation_chunks()),
          fixed(result.peak_memory_gb(), 1),
          fixed(result.peak_total_gb(), 1),
          experiment.hardware ? fixed(experiment.hardware->profile.memory_bytes / 1e9, 0) : "–",
          !margin        ? "–"
          : *margin >= 0 ? "yes"
                         : "no"};
}

// The largest offload ratio without cost, for the user's next question.
std::string offload_text(const Result& result) {
  const std::string& name = result.configuration.name;
  const double bound = *result.offload_ratio_bound, ratio = result.configuration.strategy.offload;
  return (name.empty() ? "" : name + ", ") + result.schedule + " " +
         fixed(std::floor(100 * bound) / 100, 2) +  // rounded down, so that users may choose it
         " (chosen: " + fixed(ratio, 2) + (ratio > bound ? ", which exceeds it)" : ")");
}

}  // namespace

void simulate_command(const SimulateOptions& options, const Arguments& argv) {
  if (is_pairs_scenario(options.scenario)) return simulate_pairs_command(options, argv);
  const Scenario scenario =
      read_scenario(options.scenario, Changes(options.reading.set), options.reading.invalid());
  refuse_existing(options.json, "--json");
  nlohmann::json rows = nlohmann::json::array();
  std::vector<std::vector<std::string>> lines;
  std::string offload;
  size_t of_models = 0;
  simulate_rows(scenario, [&](const SimulatedRun& run, const Experiment& experiment) {
    const Result& result = run.result;
    rows.push_back(to_json(result));
    lines.push_back(cells_of(result, experiment));
    if (result.offload_ratio_bound) offload += (offload.empty() ? "" : "; ") + offload_text(result);
    if (!result.configuration.model.empty()) ++of_models;
  });
  const std::string unit = of_models == lines.size() ? "s" : of_models == 0 ? "unit" : "s or unit";
  std::vector<std::string> head{
      "schedule",        "model",           "seq",          "tp",  "pp",        "dp",        "m",
      "step, " + unit,   "samples/" + unit, "tokens/s/GPU", "MFU", "PP bubble", "TP bubble", "peak chunks",
      "activations, GB", "all, GB",         "GPU, GB",      "fits"};
  const VaryingFields varying(rows, {"model", "seq", "tp", "pp", "dp", "microbatches"});
  varying.insert_titles(head, 7);
  Table table(head);
  for (size_t i = 0; i < lines.size(); ++i) {
    varying.insert_values(lines[i], 7, rows[i]);
    table.add(std::move(lines[i]));
  }
  table.omit_empty_columns();
  if (!write_record(options.json,
                    make_record(scenario.as_run(), Evidence::simulated, argv, "results", std::move(rows))))
    return;
  std::printf("%s (simulated; bubbles of the busiest rank, memory of the fullest)\n%s",
              scenario.title.c_str(), table.text().c_str());
  if (!offload.empty())
    std::printf(
        "Largest offload ratio with which a copy to the host takes no longer than a forward of the "
        "warm-up: %s.\n",
        offload.c_str());
}

}  // namespace stp
