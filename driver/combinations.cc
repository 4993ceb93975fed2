#include "combinations.h"

#include <nlohmann/json.hpp>
#include <vector>

#include "baselines/registry.h"
#include "progress.h"
#include "run_simulated.h"
#include "stp/base/error.h"
#include "stp/base/json_input.h"

namespace stp {
namespace {

using nlohmann::json;

struct Option {
  const char* name;  // as docs write it
  json fields;       // merged into the configuration
};

const std::vector<Option>& options() {
  static const std::vector<Option> all{
      {"sequence_parallel", {{"sequence_parallel", true}}},
      {"recompute: full", {{"recompute", "full"}}},
      {"recompute: selective", {{"recompute", "selective"}}},
      {"tp_overlap: megatron", {{"tp_overlap", "megatron"}, {"sequence_parallel", true}}},
      {"tp_overlap: domino", {{"tp_overlap", "domino"}, {"microbatch_size", 2}}},
      {"tp_overlap: flux", {{"tp_overlap", "flux"}, {"sequence_parallel", true}}},
      {"cp, ring", {{"parallel", {{"cp", 2}}}}},
      {"cp, all-to-all", {{"parallel", {{"cp", 2}, {"cp_method", "all-to-all"}}}}},
      {"offload", {{"offload", {{"ratio", 0.5}}}}},
      {"offload.chunks", {{"offload", {{"ratio", 0.5}, {"chunks", 1}}}}},
      {"zero: 1", {{"zero", 1}, {"parallel", {{"dp", 2}}}}},
      {"post_validation", {{"post_validation", true}}},
      {"merge_backward", {{"merge_backward", true}}},
      {"braid: timed", {{"braid", "timed"}}},
      {"braid: paired", {{"braid", "paired"}}},
      {"vocabulary: vocab-1", {{"schedules", {{{"vocabulary", "vocab-1"}}}}}},
      {"a vision encoder", {{"model", "mllm-14.9b"}, {"vision_tokens", 1024}}}};
  return all;
}

// A configuration that every schedule takes, with changed merged into it.
json configuration(const std::string& schedule, const std::vector<const Option*>& changed) {
  json made{{"schedules", {schedule}},
            {"model", "llm-12.1b"},
            {"seq", 2048},
            {"parallel", {{"tp", 2}, {"pp", 4}}},
            {"microbatches", 8},
            {"cluster", "a800"},
            {"release", "chain"},
            {"layers_per_chunk", "even"}};
  for (const Option* option : changed) made.merge_patch(option->fields);
  if (json& entry = made["schedules"][0]; entry.is_object()) entry["name"] = schedule;
  return made;
}

// Why a configuration is refused; "" if it is simulated.
std::string refusal(const std::string& schedule, const std::vector<const Option*>& changed) {
  const json configurations = json::array({configuration(schedule, changed)});
  try {
    const Scenario scenario =
        read_scenario("llm-a800", Changes({"configurations=" + json_text(configurations)}));
    const Experiment& experiment = scenario.experiments.front();
    run_simulated(experiment.schedules.front(), experiment, scenario.file);
    return "";
  } catch (const InputError& error) {
    return error.problem();
  }
}

}  // namespace

std::vector<std::vector<std::string>> combinations() {
  std::vector<std::vector<std::string>> rows{{"what", "refuses", "because it"}};
  const auto add = [&](const std::string& what, const std::string& refuses, const std::string& reason) {
    if (!reason.empty()) rows.push_back({what, refuses, reason});
  };
  ProgressBar progress("trying combinations", options().size() + 1);
  std::vector<const char*> schedules;
  for (const Generator* generator : generators()) {
    const std::string reason = refusal(generator->name, {});
    add(generator->name, "a model on hardware", reason);
    if (reason.empty()) schedules.push_back(generator->name);
  }
  progress.step();
  for (const Option& option : options()) {
    for (const char* schedule : schedules) add(schedule, option.name, refusal(schedule, {&option}));
    for (const Option* other = &options().front(); other != &option; ++other)
      add(option.name, other->name, refusal("stp", {&option, other}));
    progress.step();
  }
  rows.push_back({"any other pair", "nothing", ""});
  return rows;
}

}  // namespace stp
