#include <algorithm>
#include <cstdio>

#include "commands.h"
#include "comparison_table.h"
#include "output_folder.h"
#include "overlap_pairs.h"
#include "run_simulated.h"
#include "table.h"

namespace stp {
namespace {

struct SimulateOptions {
  std::string scenario, json;
};

// Writes the record to the file or to standard output; false in the latter case: then nothing else goes
// there.
bool write_record(const std::string& to, const nlohmann::json& record) {
  if (to == "-") {
    std::fputs(record_text(record).c_str(), stdout);
    return false;
  }
  if (!to.empty()) write_new_file(to, record_text(record));
  return true;
}

void simulate_pairs_command(const SimulateOptions& options, const Invocation& invocation) {
  const PairsScenario scenario = read_pairs_scenario(options.scenario);
  refuse_existing(options.json, "--json");
  const nlohmann::json record =
      make_record(scenario.as_run(), Evidence::simulated, invocation.argv, "pairs", simulate_pairs(scenario));
  if (!write_record(options.json, record)) return;
  std::printf("%s (simulated)\n%s", scenario.title.c_str(),
              pairs_table(record.at("pairs"), summarise_pairs(scenario, record)).c_str());
}

void simulate_command(const SimulateOptions& options, const Invocation& invocation) {
  if (is_pairs_scenario(options.scenario)) return simulate_pairs_command(options, invocation);
  const Scenario scenario = read_scenario(options.scenario);
  refuse_existing(options.json, "--json");
  std::vector<Result> results;
  {
    Progress progress("simulating " + scenario.name, scenario.experiments.size());
    for (const Experiment& experiment : scenario.experiments) {
      for (const ScheduleChoice& choice : experiment.schedules)
        results.push_back(run_simulated(choice, experiment, scenario.file).result);
      progress.step();
    }
  }
  nlohmann::json rows = nlohmann::json::array();
  Table table({"schedule", "model", "seq", "tp", "pp", "m", "step, s", "samples/s", "PP bubble", "TP bubble",
               "peak chunks", "GB"});
  for (const Result& result : results) {
    rows.push_back(to_json(result));
    // The bubbles of the rank that computes most: the one that sets the pace.
    const RankResult* busiest = &result.ranks[0];
    int peak = 0;
    for (const RankResult& rank : result.ranks) {
      if (rank.compute_s > busiest->compute_s) busiest = &rank;
      peak = std::max(peak, rank.peak_activation_chunks);
    }
    const Configuration& c = result.configuration;
    const double step = result.step_time_s();
    const auto share = [&](double seconds) {
      return share_text(step > 0 ? std::optional(seconds / step) : std::nullopt);
    };
    table.add({result.schedule, c.model.empty() ? "unit costs" : c.model,
               c.seq > 0 ? std::to_string(c.seq) : "–", std::to_string(c.tp), std::to_string(c.pp),
               std::to_string(c.microbatches), fixed(step, 4), fixed(result.throughput(), 3),
               share(busiest->pp_bubble_s), share(busiest->tp_bubble_s), std::to_string(peak),
               fixed(result.peak_memory_gb(), 1)});
  }
  if (!write_record(options.json, make_record(scenario.as_run(), Evidence::simulated, invocation.argv,
                                              "results", std::move(rows))))
    return;
  std::printf("%s (simulated; bubbles of the busiest rank)\n%s", scenario.title.c_str(),
              table.text().c_str());
}

}  // namespace

void add_simulate(CLI::App& app, const Invocation& invocation) {
  auto options = std::make_shared<SimulateOptions>();
  CLI::App* command = app.add_subcommand("simulate", "Replay a scenario's programs in virtual time");
  command->add_option("SCENARIO", options->scenario, "A scenario file, or the name of one of the suite's")
      ->required();
  command->add_option("--json", options->json,
                      "Write the result record to this new file (- for standard output)");
  command->callback([options, &invocation] { simulate_command(*options, invocation); });
}

}  // namespace stp
