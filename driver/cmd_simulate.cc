#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "choices.h"
#include "commands.h"
#include "comparison_table.h"
#include "experiment_memory.h"
#include "interrupt.h"
#include "option_columns.h"
#include "output_folder.h"
#include "overlap_pairs.h"
#include "remedies.h"
#include "run_simulated.h"
#include "table.h"

namespace stp {
namespace {

void simulate_pairs_command(const SimulateOptions& options, const Arguments& argv) {
  const PairsScenario scenario = read_pairs_scenario(options.scenario, Changes(options.reading.set));
  if (!options.csv.empty())
    throw InputError(options.scenario, "--csv", "does not hold pairs", "write them with --json");
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
  std::vector<std::string> cells = axis_cells(c.strategy);
  cells.insert(cells.begin(), {result.schedule, c.model.empty() ? "unit costs" : c.model,
                               c.seq > 0 ? std::to_string(c.seq) : "–"});
  cells.insert(cells.end(), {std::to_string(c.microbatches), fixed(step, 4), fixed(result.throughput(), 3),
                             fixed(result.tokens_per_s_per_gpu(), 0), share_text(result.mfu),
                             share(busiest.pp_bubble_s), share(busiest.tp_bubble_s), share_text(result.gap()),
                             std::to_string(result.peak_activation_chunks()),
                             fixed(result.peak_memory_gb(), 1), fixed(result.peak_total_gb(), 1),
                             experiment.hardware ? gb_text(experiment.hardware->profile.memory_bytes) : "–",
                             result.fits ? to_string(*result.fits) : "–"});
  return cells;
}

// The largest offload ratio without cost, for the user's next question.
std::string offload_text(const Result& result) {
  const std::string& name = result.configuration.name;
  const double bound = *result.offload_ratio_bound, ratio = result.configuration.strategy.offload;
  return (name.empty() ? "" : name + ", ") + result.schedule + " " +
         fixed(std::floor(100 * bound) / 100, 2) +  // rounded down, so that users may choose it
         " (chosen: " + fixed(ratio, 2) + (ratio > bound ? ", which exceeds it)" : ")");
}

// A row, and what it was made of.
struct Row {
  Result result;
  const ScheduleChoice* choice;
  const Experiment* experiment;
};

// How far the row is from fitting, what takes most of its fullest GPU, and what makes that smaller.
std::string shortfall_text(const Row& row, const std::string& start, const std::string& file) {
  const auto fullest = std::ranges::max_element(
      row.result.ranks, {}, [](const RankResult& rank) { return rank.memory->on_device(); });
  const RankResult::Memory& memory = *fullest->memory;
  const auto [largest, what] = std::max({std::pair{memory.activations, "activations"},
                                         {memory.optimizer, "optimizer state"},
                                         {memory.gradients, "gradients"},
                                         {memory.weights, "weights"},
                                         {memory.buffers + memory.fixed, "buffers and fixed memory"}});
  std::string said = start + heading(to_json(row.result)) + ", " + fixed(-*row.result.memory_margin_gb, 1) +
                     " GB over, with " + fixed(largest / 1e9, 1) + " GB of " + what + ".";
  Table table({"what makes it smaller (--set)", "GPUs", "GB less", "tokens/s/GPU", "then fits"});
  std::vector<Remedy> possible;
  try {
    possible = remedies(row.result, *row.choice, *row.experiment, file);
  } catch (const Interrupted&) {  // the rows are shown without it
  }
  for (const Remedy& remedy : possible)
    table.add({remedy.change, std::to_string(remedy.gpus), fixed(remedy.saved_gb, 1), percent(remedy.faster),
               to_string(remedy.fits)});
  return wrapped(said) + "\n" + (possible.empty() ? "" : table.text());
}

// The rows of a scenario: for the record and for the table.
class SimulatedRows {
 public:
  void add(const SimulatedRun& run, const Experiment& experiment, const ScheduleChoice& choice) {
    const Result& result = run.result;
    record_.push_back(to_json(result));
    csv_.push_back(csv_row(result));
    lines_.push_back(cells_of(result, experiment));
    options_.add(experiment, choice);
    if (result.offload_ratio_bound) offload_ += (offload_.empty() ? "" : "; ") + offload_text(result);
    if (!result.configuration.model.empty()) ++of_models_;
    widest_gap_ = std::max(widest_gap_, result.gap());
    keep(result, experiment, choice);
    note_recompute(run, experiment);
    if (!experiment.hardware) return;
    note_offload(result);
    kernels_.insert(word_of(experiment.hardware->implementation, kImplementations));
    if (const std::string note = best_rate_note(experiment.hardware->cluster_data); !note.empty())
      best_rates_.insert(wrapped(note) + "\n");
    const HardwareProfile& profile = experiment.hardware->profile;
    const int processors = profile.shared.count();
    if (processors > 0 && experiment.strategy.world_size() > processors) crowded_ = profile.name;
  }
  /// The profile whose processors are fewer than the ranks of a row; "" if there is none.
  [[nodiscard]] const std::string& crowded() const { return crowded_; }
  /// For standard error; none if each row's options do something.
  [[nodiscard]] std::vector<std::string> notes() const;
  [[nodiscard]] const nlohmann::json& record() const { return record_; }
  [[nodiscard]] const nlohmann::json& csv() const { return csv_; }
  /// `file`: the scenario's.
  [[nodiscard]] std::string text(const std::string& file) const;

 private:
  nlohmann::json record_ = nlohmann::json::array(), csv_ = nlohmann::json::array();
  std::vector<std::vector<std::string>> lines_;
  OptionColumns options_{{"model", "seq", "microbatches"}};
  void note_recompute(const SimulatedRun& run, const Experiment& experiment);
  void note_offload(const Result& result);
  void keep(const Result& result, const Experiment& experiment, const ScheduleChoice& choice);
  [[nodiscard]] std::string of_memory(const std::string& file) const;

  std::string offload_, yes_, maybe_;  // yes, maybe: legends, if a row fits narrowly or may fit
  size_t of_models_ = 0;
  std::optional<double> widest_gap_;
  std::optional<Row> nearest_, fastest_, fastest_that_fits_;  // nearest: with most memory left
  size_t recomputing_ = 0, in_vain_ = 0;  // rows that recompute, and those that save next to nothing by it
  std::set<std::string> in_vain_names_, in_vain_why_;
  size_t offloading_ = 0, unmoved_ = 0;  // rows that offload, and those in which nothing moves
  std::set<std::string> unmoved_names_, kernels_, best_rates_;
  std::string crowded_;
};

constexpr double kNarrow = 0.1;  // a margin, of the peak: above the error of peaks

void SimulatedRows::keep(const Result& result, const Experiment& experiment, const ScheduleChoice& choice) {
  if (!result.memory_margin_gb) return;
  if (result.fits == Fit::maybe && maybe_.empty()) {
    const HardwareProfile& gpu = experiment.hardware->profile;
    maybe_ = "maybe: what " + gpu.name + " needs besides tensors is " +
             fixed(gpu.least_fixed_memory_bytes / 1e9, 1) + " to " +
             fixed(gpu.most_fixed_memory_bytes / 1e9, 1) + " GB (" + fixed(gpu.fixed_memory_bytes / 1e9, 1) +
             " counted), which decides it\n";
  }
  if (result.fits == Fit::yes &&
      fit_of(experiment.hardware->profile, *result.memory_margin_gb, kNarrow) != Fit::yes)
    yes_ = wrapped("yes: by the predicted peak, without its error, which stp tune counts\n");
  const Row row{result, &choice, &experiment};
  if (!nearest_ || *nearest_->result.memory_margin_gb < *result.memory_margin_gb) nearest_ = row;
  const auto keep_faster = [&](std::optional<Row>& kept) {
    if (!kept || *kept->result.tokens_per_s_per_gpu() < *result.tokens_per_s_per_gpu()) kept = row;
  };
  keep_faster(fastest_);
  if (result.fits != Fit::no) keep_faster(fastest_that_fits_);
}

std::string SimulatedRows::of_memory(const std::string& file) const {
  if (!nearest_) return "";
  if (nearest_->result.fits == Fit::no) return shortfall_text(*nearest_, "None fits. Nearest is ", file);
  if (fastest_->result.fits != Fit::no) return yes_ + maybe_;
  const Result& fitting = fastest_that_fits_->result;
  const std::string said = std::string("The fastest that ") +
                           (fitting.fits == Fit::maybe ? "may fit: " : "fits: ") + heading(to_json(fitting)) +
                           ", " + fixed(*fitting.tokens_per_s_per_gpu(), 0) + " tokens/s/GPU.";
  return yes_ + maybe_ + wrapped(said) + "\n" + shortfall_text(*fastest_, "The fastest does not fit: ", file);
}

constexpr double kNextToNothing = 0.1;  // of the peak of activations

void SimulatedRows::note_recompute(const SimulatedRun& run, const Experiment& experiment) {
  if (!experiment.hardware || experiment.strategy.recompute == Recompute{}) return;
  ++recomputing_;
  if (*run.result.peak_memory_gb() <=
      (1 - kNextToNothing) * peak_gb_without_recompute(run.program, experiment))
    return;
  ++in_vain_;
  const std::string word = word_of(experiment.strategy.recompute);
  const bool contained = experiment.strategy.recompute == kLayernorm &&
                         uses_transformer_engine(experiment.hardware->implementation);
  in_vain_names_.insert(word + " of " + run.result.schedule);
  in_vain_why_.insert(
      contained ? word + " runs nothing again, as Transformer Engine's linear layers contain the norms"
                : "what " + word + " drops is little, or a deferred W keeps it until it runs");
}

void SimulatedRows::note_offload(const Result& result) {
  if (result.configuration.strategy.offload == 0) return;
  ++offloading_;
  if (std::ranges::any_of(result.ranks, [](const RankResult& rank) { return rank.memory->host > 0; })) return;
  ++unmoved_;
  unmoved_names_.insert(result.schedule);
}

std::vector<std::string> SimulatedRows::notes() const {
  std::vector<std::string> notes;
  const auto of = [](size_t count, size_t all, const char* what, const std::set<std::string>& names) {
    return std::to_string(count) + " of " + std::to_string(all) + " rows that " + what + " (" +
           joined(names) + "): ";
  };
  if (in_vain_ > 0)
    notes.push_back("recompute lowers the peak of activations by less than " + share_text(kNextToNothing, 0) +
                    " in " + of(in_vain_, recomputing_, "recompute", in_vain_names_) +
                    joined(in_vain_why_, {}, "; "));
  if (unmoved_ > 0)
    notes.push_back("offload moves nothing in " + of(unmoved_, offloading_, "offload", unmoved_names_) +
                    "no backward of chunk 0 stands four blocks behind its forward, or no saved tensor "
                    "fits into the ratio (with offload.chunks: no activation waits long enough)");
  return notes;
}

std::string SimulatedRows::text(const std::string& file) const {
  const std::string unit = of_models_ == lines_.size() ? "s" : of_models_ == 0 ? "unit" : "s or unit";
  std::vector<std::string> head = axis_heads();
  head.insert(head.begin(), {"schedule", "model", "seq"});
  const size_t options_at = head.size() + 1;
  head.insert(head.end(),
              {"m", "step, " + unit, "samples/" + unit, "tokens/s/GPU", "MFU", "PP bubble", "TP bubble",
               "gap", "peak chunks", "activations, GB", "all, GB", "GPU, GB", "fits"});
  Table table = options_.table(std::move(head), lines_, options_at);
  table.omit_empty_columns();
  table.highlight("fits", "no");
  return table.text() + gap_note(widest_gap_) + of_memory(file) +
         (offload_.empty() ? ""
                           : "Largest offload ratio with which a copy to the host takes no longer than a "
                             "forward of the warm-up: " +
                                 offload_ + ".\n") +
         (kernels_.empty() ? "" : wrapped(kernels_text(kernels_)) + "\n") + joined(best_rates_, {}, "");
}

}  // namespace

void simulate_command(const SimulateOptions& options, const Arguments& argv) {
  check_outputs({{options.json, "--json"}, {options.csv, "--csv"}});
  if (is_pairs_scenario(options.scenario)) return simulate_pairs_command(options, argv);
  const Scenario scenario =
      read_scenario(options.scenario, Changes(options.reading.set), options.reading.invalid());
  say_differences(scenario);
  SimulatedRows rows;
  bool whole = true;
  note_interrupts();
  try {
    simulate_rows(scenario, [&](const auto& run, const auto&... row) { rows.add(*run, row...); });
  } catch (const Interrupted&) {
    if (rows.record().empty()) throw;
    whole = false;
  }
  nlohmann::json record = make_record(scenario.as_run(), Evidence::simulated, argv, "results", rows.record());
  if (!whole) record["interrupted"] = true;
  const bool prints = write_record(options.json, record);
  if (write_csv(options.csv, rows.csv()) && prints)
    std::printf("%s (simulated; bubbles of the busiest rank, memory of the fullest)\n%s",
                scenario.title.c_str(), rows.text(scenario.file).c_str());
  if (!rows.crowded().empty())
    std::fprintf(stderr,
                 "stp: ranks are more than the processors of %s, yet simulated as if each had its own\n",
                 rows.crowded().c_str());
  for (const std::string& note : rows.notes()) std::fprintf(stderr, "stp: %s\n", note.c_str());
  if (interrupted())
    throw Interrupted(kept_rows(rows.record().size(), scenario.rows(), {options.json, options.csv}));
}

}  // namespace stp
