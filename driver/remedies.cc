#include "remedies.h"

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>

#include "baselines/registry.h"
#include "changes.h"
#include "experiment_memory.h"
#include "read_experiment.h"
#include "run_simulated.h"
#include "table.h"

namespace stp {
namespace {

using nlohmann::json;

constexpr double kLeastSaving = 0.05;  // GB

// Words of --set. What takes twice the ranks or half the samples is compared by tokens per second and GPU.
using Words = std::vector<std::string>;
std::vector<Words> changes_of(const Experiment& experiment) {
  const Strategy& strategy = experiment.strategy;
  const auto with = [](const char* key, int value) { return key + std::string("=") + std::to_string(value); };
  std::vector<Words> changes{{"sequence_parallel=true"},
                             {"zero=1"},
                             {"gradients=model"},
                             {"recompute=full"},
                             {with("parallel.tp", 2 * strategy.tp)},
                             {with("parallel.cp", 2 * strategy.cp)},
                             {with("parallel.pp", 2 * strategy.pp)}};
  if (!experiment.layers_per_chunk.empty()) changes.back().emplace_back("layers_per_chunk=even");
  if (experiment.microbatch_size % 2 == 0)
    changes.push_back({with("microbatch_size", experiment.microbatch_size / 2),
                       with("microbatches", 2 * experiment.microbatches)});
  return changes;
}

// Reads the experiment again, so that a change is refused as in a scenario.
Experiment changed(const Experiment& experiment, const Words& words, const std::string& file) {
  const json all =
      Scenario{.file = file, .name = "", .title = "", .experiments = {experiment}, .comparison = {}}.as_run();
  json content = all.at("configurations").at(0);
  content["models"] = all.at("models");
  content["clusters"] = all.at("clusters");
  Changes(words).apply_to_scenario(content);
  JsonInput input(content, file);
  return read_experiments(input, "", experiment.name, {}).front();
}

std::vector<ScheduleChoice> smaller_schedules(const ScheduleChoice& choice, const Experiment& experiment) {
  std::vector<ScheduleChoice> smaller;
  if (!choice.file.empty()) return smaller;
  for (const char* name : find_generator(choice.name).smaller) {
    if (name == nullptr) continue;
    const ScheduleChoice other{name, "", 0};
    if (std::ranges::find(experiment.schedules, other) == experiment.schedules.end())
      smaller.push_back(other);
  }
  return smaller;
}

}  // namespace

std::vector<Remedy> remedies(const Result& result, const ScheduleChoice& choice, const Experiment& experiment,
                             const std::string& file) {
  std::vector<Remedy> found;
  const auto simulate = [&](const std::string& change, const ScheduleChoice& schedule, const auto& make) {
    try {
      const Experiment other = make();
      const Result with = run_simulated(schedule, other, file).result;
      const double saved = *result.peak_total_gb() - *with.peak_total_gb();
      if (saved >= kLeastSaving)
        found.push_back({change, other.strategy.world_size(), saved,
                         *with.tokens_per_s_per_gpu() / *result.tokens_per_s_per_gpu() - 1, *with.fits});
    } catch (const InputError&) {
      return;  // impossible here
    }
  };
  for (const Words& words : changes_of(experiment)) {
    Words shown = words;
    if (experiment.of_global_batch)  // of which microbatches follow
      std::erase_if(shown, [](const std::string& word) { return word.starts_with("microbatches="); });
    simulate(joined(shown, std::identity(), " "), choice, [&] { return changed(experiment, words, file); });
  }
  for (const ScheduleChoice& other : smaller_schedules(choice, experiment))
    simulate("schedules=[\"" + other.name + "\"]", other, [&] { return experiment; });
  std::ranges::stable_sort(found, std::ranges::greater{}, &Remedy::faster);
  return found;
}

std::string remedies_text(const ScheduleChoice& choice, const Experiment& experiment, const std::string& file,
                          double peak_error) {
  std::string text;
  try {
    const Result result = run_simulated(choice, experiment, "").result;
    for (const Remedy& remedy : remedies(result, choice, experiment, file)) {
      const Fit fit =
          fit_of(experiment.hardware->profile, *result.memory_margin_gb + remedy.saved_gb, peak_error);
      const bool more = remedy.gpus != experiment.strategy.world_size();
      text += (text.empty() ? "" : ", ") + remedy.change +
              (more ? " (" + std::to_string(remedy.gpus) + " GPUs)" : "") + " saves " +
              fixed(remedy.saved_gb, 1) + " GB" +
              (fit == Fit::yes     ? " and fits"
               : fit == Fit::maybe ? " and may fit"
                                   : "");
    }
  } catch (const InputError&) {  // the choice itself is refused
    return "";
  }
  return text;
}

}  // namespace stp
