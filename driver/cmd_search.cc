#include <algorithm>
#include <charconv>
#include <climits>
#include <cmath>
#include <cstdio>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "baselines/registry.h"
#include "commands.h"
#include "experiment_memory.h"
#include "interrupt.h"
#include "output_folder.h"
#include "progress.h"
#include "remedies.h"
#include "run_simulated.h"
#include "stp/base/error.h"
#include "stp/base/json_input.h"
#include "stp/schedule/local_search.h"
#include "stp/schedule/validate.h"
#include "stp/schedule/vocabulary.h"
#include "table.h"

namespace stp {
namespace {

constexpr double kNear = 1e-3;         // of the bound: no search for less
constexpr double kOpsOfMoves = 2.5e9;  // of all moves together: one to two minutes
constexpr int64_t kMostMoves = 2'000'000;

// An order to start from.
struct Start {
  Schedule schedule;
  Program program;
  double step_s, bound_s = 0;
};

int peak_of(const Schedule& schedule, const Experiment& experiment) {
  return std::ranges::max(peak_activations(schedule, experiment.freed_at == FreedAt::I));
}

// What a rank may hold.
struct Limit {
  int activations = std::numeric_limits<int>::max();
  double bytes = std::numeric_limits<double>::infinity();  // of activations
  bool is_gpu = false;                                     // the GPU's memory, of everything
};

std::function<bool(const Program&)> fits_into(const Limit& limit, const Experiment& experiment) {
  if (limit.is_gpu)
    return [&experiment](const Program& program) {
      return fit_of(experiment.hardware->profile, margin_gb(experiment, program)) != Fit::no;
    };
  return [&experiment, most = limit.bytes](const Program& program) {
    return std::isinf(most) || peak_bytes(program, experiment) <= most;
  };
}

Start start_of(const ScheduleChoice& choice, const Experiment& experiment, const std::string& file,
               const Limit& limit) {
  Schedule schedule = schedule_for(choice, experiment, file);
  // The moves know neither a second pipeline nor passes of a shared vocabulary.
  if (!is_single_and_whole(schedule))
    throw InputError(
        file, "schedules",
        name_of(choice) + " has two pipelines or shares the vocabulary: no search changes such an order",
        "name another schedule, such as stp, or several, to start from the suite's fastest");
  Program program = program_for(choice, experiment, file);
  const double step_s = order_timer(experiment, program, fits_into(limit, experiment))(schedule);
  return {std::move(schedule), std::move(program), step_s};
}

bool fits(const Start& start, const Experiment& experiment, const Limit& limit) {
  return std::isfinite(start.step_s) && peak_of(start.schedule, experiment) <= limit.activations;
}

// "15"; "schedule:stp": as many, and as many bytes, as that schedule holds; "": what the GPU holds, if any.
Limit limit_of(const std::string& text, const Experiment& experiment, const std::string& file) {
  constexpr std::string_view kSchedule = "schedule:";
  if (text.empty()) return {.is_gpu = experiment.hardware.has_value()};
  if (text.starts_with(kSchedule)) {
    const ScheduleChoice choice{.name = text.substr(kSchedule.size())};
    try {
      return {peak_of(schedule_for(choice, experiment, file), experiment),
              peak_bytes(program_for(choice, experiment, file), experiment)};
    } catch (const InputError& error) {
      throw error.moved("", "--memory-limit");
    }
  }
  int limit = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), limit);
  if (error != std::errc() || end != text.data() + text.size() || limit < 1)
    throw InputError("", "--memory-limit", "\"" + text + "\" is no number of activations",
                     "write a number from 1, or schedule:NAME for as many as that schedule holds");
  return {.activations = limit};
}

std::string text_of(const Limit& limit) {
  const bool of_bytes = std::isfinite(limit.bytes) && limit.bytes > 0;
  return counted(limit.activations, "activation") +
         (of_bytes ? " and " + fixed(limit.bytes / 1e9, 1) + " GB of them" : "");
}

std::string of_gpu(const Experiment& experiment) {
  const HardwareProfile& gpu = experiment.hardware->profile;
  return "the " + gb_text(gpu.memory_bytes) + " GB of " + gpu.name;
}

InputError nothing_fits(const ScheduleChoice& nearest, double margin_gb, const Experiment& experiment,
                        const std::string& file) {
  const std::string helps = remedies_text(nearest, experiment, file);
  return {file, "schedules",
          "none of the suite's fits into " + of_gpu(experiment) + ": the nearest, " + nearest.name +
              ", lacks " + fixed(-margin_gb, 1) + " GB",
          "change the scenario" + (helps.empty() ? "" : " (from the nearest, " + helps + ")") +
              ", or limit activations alone with --memory-limit"};
}

// The fastest order of the suite within the limit.
Start fastest_start(const Experiment& experiment, const Limit& limit, const std::string& file) {
  std::optional<Start> fastest;
  std::optional<InputError> refused;
  bool made = false;
  std::pair<double, ScheduleChoice> nearest{-std::numeric_limits<double>::infinity(), {}};  // with its margin
  ProgressBar progress("timing schedules", generators().size());
  for (const Generator* generator : generators()) {
    check_interrupted();
    try {
      Start start = start_of({.name = generator->name}, experiment, file, limit);
      made = true;
      if (generator->cost_aware && peak_of(start.schedule, experiment) > limit.activations)
        start = start_of({.name = generator->name, .options = {.memory_limit = limit.activations}},
                         experiment, file, limit);
      if (fits(start, experiment, limit) && (!fastest || start.step_s < fastest->step_s))
        fastest = std::move(start);
      else if (const double margin = limit.is_gpu ? margin_gb(experiment, start.program) : nearest.first;
               margin > nearest.first)
        nearest = {margin, {.name = generator->name}};
    } catch (const InputError& error) {  // not for this p and m, or not to be searched
      if (!refused) refused = error;
    }
    progress.step();
  }
  if (!made) throw *refused;
  if (!fastest && limit.is_gpu) throw nothing_fits(nearest.second, nearest.first, experiment, file);
  if (!fastest)
    throw InputError(file, "--memory-limit", "no schedule of the suite holds as few as " + text_of(limit),
                     "allow more");
  return *std::move(fastest);
}

void check(const Experiment& experiment, const std::string& file) {
  const auto refuse = [&](const char* field, const char* problem) {
    throw InputError(file, field, problem, "remove it");
  };
  if (experiment.run) refuse("run", "makes this a scenario for devices, and a search simulates");
  if (experiment.merge_backward) refuse("merge_backward", "is what the search decides itself");
}

std::string end_text(SearchResult::End end) {
  switch (end) {
    case SearchResult::End::enough:
      return "the order is within 0.1 % of the bound";
    case SearchResult::End::nothing_found:
      return "the last round found nothing faster";
    case SearchResult::End::moves:
      return "all moves are done";
    case SearchResult::End::stopped:
      break;
  }
  return "interrupted";
}

// "search fits: 80.1 of the 85.5 GB of h100. "
std::string fit_text(const Start& from, const Schedule& order, const Experiment& experiment) {
  const HardwareProfile& gpu = experiment.hardware->profile;
  const std::vector<int>& layers = from.program.layers_per_stage;
  const Lowering lowering = lowering_for(experiment, from.schedule, layers);
  const double margin = margin_gb(experiment, lower(order, layers, lowering));
  return order.name + (fit_of(gpu, margin) == Fit::yes ? " fits: " : " may fit: ") +
         fixed(gpu.memory_bytes / 1e9 - margin, 1) + " of " + of_gpu(experiment) + ". ";
}

void print_result(const std::vector<Start>& starts, const SearchResult& result, const Limit& limit,
                  const Experiment& experiment) {
  const auto line = [&](const Schedule& schedule, double step_s, const Start& from) {
    std::optional<double> gain, gap;  // none where all costs are 0
    if (step_s > 0) gain = starts.front().step_s / step_s - 1;
    if (from.bound_s > 0) gap = step_s / from.bound_s - 1;
    return std::vector<std::string>{schedule.name, fixed(step_s, 4), percent(gain), share_text(gap),
                                    std::to_string(peak_of(schedule, experiment))};
  };
  Table table({"schedule", "step", "gain", "gap", "peak chunks"});
  for (const Start& start : starts) table.add(line(start.schedule, start.step_s, start));
  const Start& from = *std::ranges::find(starts, result.schedule.placement,
                                         [](const Start& start) { return start.schedule.placement; });
  if (result.step_s < starts.front().step_s) table.add(line(result.schedule, result.step_s, from));
  std::printf("%s", table.text().c_str());
  if (limit.activations < std::numeric_limits<int>::max())
    std::printf("At most %s on a rank. ", counted(limit.activations, "activation").c_str());
  if (limit.is_gpu) std::printf("%s", fit_text(from, result.schedule, experiment).c_str());
  std::printf("%lld orders timed; %s.\n", static_cast<long long>(result.moves), end_text(result.end).c_str());
}

// From each start with its share of the moves; the best of all.
SearchResult search_from(const std::vector<Start>& starts, const Limit& limit, const Experiment& experiment,
                         const SearchOptions& options) {
  const auto ops = static_cast<double>(starts.front().program.ops.size());
  const int64_t most =
      options.moves > 0 ? options.moves : std::min(kMostMoves, static_cast<int64_t>(kOpsOfMoves / ops));
  ProgressBar progress("searching, per cent", 100);
  int shown = 0;
  int64_t moves = 0;
  const auto go_on = [&](int64_t of_this, double) {
    for (; shown < 100 * (moves + of_this) / most; ++shown) progress.step();
    return !interrupted();
  };
  std::optional<SearchResult> best;
  bool stopped = false;
  for (const Start& start : starts) {
    SearchResult found =
        local_search(start.schedule, start.step_s,
                     {.seed = options.seed,
                      .moves = most / static_cast<int64_t>(starts.size()),
                      .activation_limit = limit.activations,
                      .freed_at_I = experiment.freed_at == FreedAt::I,
                      .enough_s = (1 + kNear) * start.bound_s,
                      .step_seconds = order_timer(experiment, start.program, fits_into(limit, experiment)),
                      .go_on = go_on});
    moves += found.moves;
    if (found.step_s < start.step_s) found.schedule.name = "search";
    stopped = found.end == SearchResult::End::stopped;
    if (!best || found.step_s < best->step_s) best = std::move(found);
    if (stopped) break;
  }
  best->moves = moves;
  if (stopped) best->end = SearchResult::End::stopped;
  return *std::move(best);
}

}  // namespace

void search_command(const SearchOptions& options) {
  check_outputs({{options.out, "--out"}});
  const Scenario scenario = read_scenario(options.scenario, Changes(options.set));
  say_differences(scenario);
  const Experiment& experiment = configuration_at(scenario, options.configuration);
  check(experiment, scenario.file);
  note_interrupts();
  const Limit limit = limit_of(options.memory_limit, experiment, scenario.file);
  std::vector<Start> starts;
  if (experiment.schedules.size() == 1)
    starts.push_back(start_of(experiment.schedules.front(), experiment, scenario.file, limit));
  if (!starts.empty() && !fits(starts.front(), experiment, limit)) starts.clear();
  Start fastest = fastest_start(experiment, limit, scenario.file);
  if (starts.empty() || starts.front().schedule.ranks != fastest.schedule.ranks)
    starts.push_back(std::move(fastest));
  std::ranges::stable_sort(starts, {}, &Start::step_s);
  const bool limits = !options.memory_limit.empty() && experiment.freed_at == FreedAt::W;
  const int64_t in_parts = int64_t{limit.activations} * experiment.strategy.parts_of_microbatch();
  for (Start& start : starts)
    start.bound_s = step_bound_of(experiment, start.program, cost_table_of(experiment, start.program),
                                  limits ? static_cast<int>(std::min<int64_t>(in_parts, INT_MAX)) : 0);
  const SearchResult result = search_from(starts, limit, experiment, options);
  validate(result.schedule);
  if (options.out != "-") print_result(starts, result, limit, experiment);
  write_text(options.out, [&] { return json_text(to_json(result.schedule)) + "\n"; });
  if (interrupted()) throw Interrupted("the best order so far is written");
}

}  // namespace stp
