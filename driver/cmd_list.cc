#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "baselines/registry.h"
#include "commands.h"
#include "progress.h"
#include "run_simulated.h"
#include "stp/base/data.h"
#include "stp/base/json_input.h"
#include "stp/cluster/profile.h"
#include "stp/model/config.h"
#include "table.h"

namespace stp {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using Listing = std::vector<std::vector<std::string>>;  // a head, then by name

std::vector<fs::path> files_in(const std::string& folder) {
  std::vector<fs::path> files;
  for (const std::string& name : data_names(folder))
    files.emplace_back(data_path(folder + "/" + name + ".json"));
  return files;
}

Listing scenarios() {
  Listing rows{{"scenario", "for", "what it is"}};
  for (const fs::path& file : files_in("scenarios")) {
    const json scenario = read_json_file(file);
    rows.push_back({file.stem(), scenario.contains("run") ? "stp run" : "stp simulate",
                    scenario.value("title", std::string())});
  }
  return rows;
}

Listing models() {
  Listing rows{{"model", "parameters, billion", "layers", "hidden", "vision layers"}};
  for (const fs::path& file : files_in("models")) {
    const ModelConfig model = read_model(file);
    rows.push_back({file.stem(), fixed(model.parameters() / 1e9, 2), std::to_string(model.layers),
                    std::to_string(model.hidden), std::to_string(model.vision.layers)});
  }
  return rows;
}

Listing profiles() {
  Listing rows{{"profile", "GPUs a node", "bf16, TFLOP/s", "memory, GB", "all-reduce, GB/s", "accelerator"}};
  for (const fs::path& file : files_in("profiles")) {
    const HardwareProfile profile = read_profile(file);
    rows.push_back({file.stem(), std::to_string(profile.gpus_per_node), fixed(profile.peak_flops / 1e12, 0),
                    fixed(profile.memory_bytes / 1e9, 0), fixed(profile.all_reduce_bus_bytes_per_s / 1e9, 0),
                    profile.accelerator});
  }
  return rows;
}

Listing schedules() {
  Listing rows{{"schedule", "chunks", "range", "what it is"}};
  for (const Generator* generator : generators())
    rows.push_back(
        {generator->name, std::to_string(generator->chunks), generator->range, generator->summary});
  return rows;
}

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

// What goes with what, found by simulating each schedule with each option, and STP with each two: the option
// that is refused, with the reason.
Listing combinations() {
  Listing rows{{"what", "refuses", "because it"}};
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

}  // namespace

const std::vector<std::string>& listed_kinds() {
  static const std::vector<std::string> kinds{"scenarios", "models", "profiles", "schedules", "combinations"};
  return kinds;
}

void list_command(const std::string& kind, bool names_only) {
  if (kind.empty()) {
    for (const std::string& each : listed_kinds()) std::printf("%s\n", each.c_str());
    return;
  }
  Listing rows = kind == "scenarios"   ? scenarios()
                 : kind == "models"    ? models()
                 : kind == "profiles"  ? profiles()
                 : kind == "schedules" ? schedules()
                                       : combinations();
  if (names_only) {
    for (size_t i = 1; i < rows.size(); ++i) std::printf("%s\n", rows[i].front().c_str());
    return;
  }
  Table table(std::move(rows.front()));
  for (size_t i = 1; i < rows.size(); ++i) table.add(std::move(rows[i]));
  std::fputs(table.text().c_str(), stdout);
}

}  // namespace stp
