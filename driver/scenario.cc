#include "scenario.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "baselines/registry.h"
#include "choices.h"
#include "configurations.h"
#include "read_experiment.h"
#include "stp/base/data.h"
#include "stp/schedule/share_vocabulary.h"

namespace stp {
namespace {

using nlohmann::json;

constexpr size_t kLongestName = 100;

json to_json(const Experiment::Run& run) {
  json options = {{"type", word_of(run.type, kTypes)},
                  {"steps", run.steps},
                  {"warmup", run.warmup},
                  {"seed", run.initialisation.seed},
                  {"weight_deviation", run.initialisation.weight_deviation},
                  {"bias_deviation", run.initialisation.bias_deviation},
                  {"gain_deviation", run.initialisation.gain_deviation},
                  {"learning_rate", run.optimizer.learning_rate},
                  {"weight_decay", run.optimizer.weight_decay},
                  {"clip_norm", run.clip_norm},
                  {"parity", run.parity},
                  {"skip_refused", run.skip_refused}};
  if (!run.text.empty()) options["text"] = run.text;
  return options;
}

json to_json(const Recipe& recipe, const Strategy& strategy) {
  json value = {{"gathers_in_step", recipe.gathers_in_step}, {"state_bytes", recipe.state_bytes}};
  if (recipe.bucket_parameters > 0) value["bucket_parameters"] = recipe.bucket_parameters;
  for (size_t unit = 0; unit < 2; ++unit)
    value[kScatterMethodFields[unit]] = word_of(strategy.ring_scatter[unit], kScatterMethods);
  for (const auto& [name, sms] : kOverlapSms)
    for (size_t unit = 0; unit < 2; ++unit)
      value["overlap_sms"][name[unit]] = (recipe.overlap_sms.*sms)[unit];
  return value;
}

json to_json(const Experiment::Hardware& hardware) {
  return {{"cluster", hardware.cluster_data.name},
          {"implementation", word_of(hardware.implementation, kImplementations)},
          {"scatter_transfers", hardware.scatter_transfers}};
}

json by_name(const NamedData& data) { return {{data.name, *data.content}}; }

}  // namespace

std::string name_of(const ScheduleChoice& choice) {
  const std::string name =
      choice.file.empty() ? choice.name : std::filesystem::path(choice.file).stem().string();
  return shared_name(name, choice.vocabulary);
}

void say_differences(const Scenario& scenario) {
  std::set<std::string> said;
  for (const Experiment& experiment : scenario.experiments) {
    const SampledModel* const model = model_of(experiment);
    if (model == nullptr) continue;
    const auto& [name, path, content, import] = model->model_data;
    const std::string note = import.note();
    if (!note.empty() && said.insert(path).second)
      std::fprintf(stderr, "stp: %s: %s\n", path.c_str(), note.c_str());
    if (const int window = content->value("sliding_window", 0);
        window > 0 && model->seq > window && said.insert(path + " window").second)
      std::fprintf(stderr,
                   "stp: %s: attends to all %d tokens here, not to a window of %d, which is more work\n",
                   path.c_str(), model->seq, window);
    if (!experiment.hardware) continue;
    const NamedData& cluster = experiment.hardware->cluster_data;
    if (said.insert(cluster.path).second) say_overridden(*cluster.content, cluster.path);
    if (uses_transformer_engine(experiment.hardware->implementation) &&
        said.insert(cluster.path + " attention").second)
      say_overridden_attention(*cluster.content, cluster.path);
  }
}

bool at_best_rate(const json& profile) {
  return !profile.contains("gemm_sustained") && !profile.contains("gemm_measured") &&
         !profile.at("gemm_efficiency").value("fitted", false);
}

std::string best_rate_note(const NamedData& cluster) {
  const json& profile = *cluster.content;
  if (!at_best_rate(profile)) return "";
  return "GEMMs are at their best rate, not at what a power limit leaves in trainings, as the profile " +
         profile.at("name").get<std::string>() + " has no gemm_sustained.";
}

std::string kernels_text(const std::set<std::string>& implementations) {
  const std::map<std::string, std::string> described{{"megatron", "megatron (unfused)"},
                                                     {"megatron-te", "megatron-te (Transformer Engine)"},
                                                     {"suite", "suite (fused)"}};
  return "kernels: " +
         joined(implementations,
                [&](const std::string& word) {
                  const auto found = described.find(word);
                  return found == described.end() ? word : found->second;
                }) +
         (implementations.contains("megatron-te")
              ? ""
              : "; --set implementation=megatron-te for Transformer Engine's");
}

void say_overridden(const json& profile, const std::string& file) {
  constexpr double kSame = 1.4;  // the suite's profiles: 0.9 to 1.3, switches that add up among them
  const json measured = profile.value("all_reduce_measured", json::array());
  const json& bus = profile.at("all_reduce_bus_gb_per_s");
  double most = 0;
  for (const json& group : measured)
    for (const json& size : group.at("sizes")) most = std::max(most, size.at("bus_gb_per_s").get<double>());
  const double times = bus.at("value").get<double>() / most;
  if (measured.empty() || (bus.at("source") != "--set" && times < kSame && kSame * times > 1)) return;
  const bool in_switch =
      std::ranges::any_of(measured, [](const json& group) { return group.value("in_switch", false); });
  std::fprintf(stderr,
               "stp: %s: all_reduce_bus_gb_per_s is %g, which has no effect on all-reduces of groups of %s "
               "ranks%s: their all_reduce_measured, up to %g, comes first; change that too, or remove it "
               "(--set cluster.all_reduce_measured=[])\n",
               file.c_str(), bus.at("value").get<double>(),
               joined(measured, [](const json& group) { return json_text(group.at("ranks")); }).c_str(),
               in_switch ? " (their reduce-scatters and all-gathers take it)" : "", most);
}

void say_overridden_attention(const json& profile, const std::string& file) {
  if (!profile.contains("attention_cudnn")) return;
  for (const char* field : {"peak_tflops", "attention_forward_efficiency", "attention_backward_efficiency"})
    if (profile.at(field).at("source") == "--set")
      std::fprintf(stderr,
                   "stp: %s: %s is given by --set, which has no effect on attention with Transformer Engine: "
                   "the measured rates of attention_cudnn come first; change those too (--set "
                   "cluster.attention_cudnn.lengths=[…])\n",
                   file.c_str(), field);
}

std::string scenario_path(const std::string& word) {
  std::error_code ignored;
  if (word.ends_with(".csv") || word.ends_with(".txt"))
    throw InputError(word, "", "is a schedule, not a scenario",
                     R"(name it in a scenario: "schedules": [{"file": "…"}]; or check it with stp validate)");
  if (word == "-" || word.ends_with(".json") || std::filesystem::exists(word, ignored)) return word;
  return find_data_file(word, "scenarios", "", "SCENARIO");
}

void say_left_out(const std::string& name, const InputError& error) {
  std::fprintf(stderr, "stp: left out: %s%s\n", name.empty() ? "" : (name + ": ").c_str(), error.what());
}

NamedData read_named_data(JsonInput& input, const char* key, const char* folder, const Changes& changes) {
  const std::string name = input.string(key);
  const std::string kept = key + std::string("s");  // in the scenario of a record
  std::string path;
  json content;
  if (input.has(kept) && input.object(kept).has(name)) {
    content = input.object(kept).value(name);
    path = input.file() + ": " + kept + "." + name;
  } else {
    const std::string config = name + "/config.json";  // of a checkpoint's folder
    std::error_code ignored;
    const bool is_folder = key == std::string("model") && is_path(name) &&
                           std::filesystem::is_directory(path_in(input.file(), name), ignored);
    path = find_data_file(is_folder ? config : name, folder, input.file(), input.path(key));
    content = read_json_file(path);
  }
  ImportedModel import;
  if (is_hugging_face(content)) {
    import = import_hugging_face(content, path);
    content = *import.content;
  }
  changes.apply_to_file(key, content);
  return {name, path, std::make_shared<const json>(std::move(content)), std::move(import)};
}

int read_scenario_order(JsonInput& input) { return input.integer_or("order", 100, 0); }

std::string read_scenario_name(JsonInput& input) {
  std::string name = input.string("name");
  const auto unfit = [](char c) { return c == '/' || std::iscntrl(static_cast<unsigned char>(c)) != 0; };
  if (name.empty() || name[0] == '.' || name.size() > kLongestName ||
      std::any_of(name.begin(), name.end(), unfit))
    throw input.error(
        "name", "cannot be the name of a result file",
        "use 1 to " + std::to_string(kLongestName) + " characters without /, not beginning with a dot");
  return name;
}

const SampledModel* model_of(const Experiment& experiment) {
  if (experiment.hardware) return &*experiment.hardware;
  return experiment.run ? &*experiment.run : nullptr;
}

int model_layers(const Experiment& experiment) {
  const SampledModel* const model = model_of(experiment);
  return model != nullptr ? model->model.layers : static_cast<int>(experiment.layer_costs.size());
}

json options_json(const Experiment& experiment) {
  json value = {{"microbatches", experiment.microbatches},
                {"microbatch_size", experiment.microbatch_size},
                {"release", word_of(experiment.release, kReleases)},
                {"backward", word_of(experiment.backward, kBackwards)},
                {"braid", word_of(experiment.braid, kBraids)},
                {"freed_at", word_of(experiment.freed_at, kFreedAt)}};
  if (experiment.strategy.post_validation) value["post_validation"] = true;
  if (experiment.merge_backward) value["merge_backward"] = true;
  if (!experiment.layer_costs.empty()) value["layer_costs"] = experiment.layer_costs;
  if (!experiment.microbatch_costs.empty()) value["microbatch_costs"] = experiment.microbatch_costs;
  if (!experiment.unit_costs) {
    value["sequence_parallel"] = experiment.strategy.sequence_parallel;
    value["recompute"] = word_of(experiment.strategy.recompute);
    value["tp_overlap"] = word_of(experiment.strategy.tp_overlap, kTpOverlaps);
  }
  if (const SampledModel* const model = model_of(experiment); model != nullptr && model->vision_tokens > 0)
    value["vision_tokens"] = model->vision_tokens;
  if (!experiment.hardware) return value;
  const Experiment::Hardware& hardware = *experiment.hardware;
  value["contention"] = hardware.contention;
  value["gradients"] = word_of(hardware.model_gradients, kGradients);
  if (hardware.cluster_values) value["cluster_values"] = *hardware.cluster_values;
  if (hardware.implementation != Implementation::megatron)
    value["implementation"] = word_of(hardware.implementation, kImplementations);
  if (hardware.recipe != Recipe{} || experiment.strategy.ring_scatter != Strategy().ring_scatter)
    value["recipe"] = to_json(hardware.recipe, experiment.strategy);
  if (hardware.scatter_transfers) value["scatter_transfers"] = true;
  if (!hardware.sends_share_adapter) value["sends_share_adapter"] = false;
  return value;
}

json to_json(const Experiment& experiment) {
  json value = options_json(experiment);
  value["schedules"] = *experiment.schedules_as_read;
  for (size_t i = 0; i < experiment.schedules.size(); ++i)
    if (const std::string& file = experiment.schedules[i].file; !file.empty())
      value["schedules"][i]["file"] = path_of_user(file);  // from any folder
  for (const Axis& axis : kAxes) value["parallel"][axis.name] = experiment.strategy.*axis.ranks;
  value["zero"] = experiment.strategy.zero ? 1 : 0;
  if (experiment.strategy.cp_method != CpMethod::ring)
    value["parallel"]["cp_method"] = word_of(experiment.strategy.cp_method, kCpMethods);
  if (!experiment.name.empty()) value["name"] = experiment.name;
  if (experiment.strategy.offload > 0 || experiment.strategy.offload_chunks > 0)
    value["offload"] = {{"ratio", experiment.strategy.offload}};
  if (experiment.strategy.offload_chunks > 0) {
    value["offload"]["chunks"] = experiment.strategy.offload_chunks;
    value["offload"]["share"] = experiment.strategy.offload_share;
    if (experiment.strategy.offload_round_trip > 0)
      value["offload"]["round_trip"] = experiment.strategy.offload_round_trip;
  }
  if (!experiment.layers_per_chunk.empty())
    value["layers_per_chunk"] = experiment.layers_per_chunk;
  else
    value["layers_per_chunk"] = word_of(experiment.split, kSplits);
  if (experiment.chunks > 0) value["chunks"] = experiment.chunks;
  if (experiment.schedule_costs) {
    const PassCosts& costs = *experiment.schedule_costs;
    value["schedule_costs"] = {{"F", costs.F}, {"I", costs.I}, {"W", costs.W}, {"p2p", costs.p2p}};
  }
  if (experiment.unit_costs) value["costs"] = {{"unit", *experiment.unit_costs_as_read}};
  if (const SampledModel* const model = model_of(experiment))
    value.update({{"model", model->model_data.name}, {"seq", model->seq}});
  if (experiment.run) value["run"] = to_json(*experiment.run);
  if (experiment.hardware) value.update(to_json(*experiment.hardware));
  return value;
}

size_t Scenario::rows() const {
  size_t count = 0;
  for (const Experiment& experiment : experiments) count += experiment.schedules.size();
  return count;
}

json Scenario::as_run() const {
  json configurations = json::array();
  for (const Experiment& experiment : experiments) configurations.push_back(to_json(experiment));
  json scenario = {{"name", name}, {"title", title}, {"configurations", configurations}};
  if (comparison) scenario["compare"] = to_json(*comparison);
  // Adds the contents of the named models and clusters.
  for (const Experiment& experiment : experiments) {
    if (const SampledModel* const model = model_of(experiment))
      scenario["models"].update(by_name(model->model_data));
    if (experiment.hardware) scenario["clusters"].update(by_name(experiment.hardware->cluster_data));
  }
  return scenario;
}

namespace {

// Refuses a gain of a schedule that neither a row nor the suite has.
void check_gain(const Scenario& scenario) {
  const Comparison given = scenario.comparison.value_or(Comparison());
  std::set<std::string> names{""};
  for (const Generator* generator : generators()) names.insert(generator->name);
  for (const Experiment& experiment : scenario.experiments)
    for (const ScheduleChoice& choice : experiment.schedules) names.insert(name_of(choice));
  for (const auto& [name, field] : {std::pair(given.gain_of, "of"), std::pair(given.gain_over, "over")})
    if (!names.contains(name.substr(0, name.find('+'))) && !names.contains(name))
      throw InputError(scenario.file, std::string("compare.gain.") + field,
                       "is \"" + name + "\", which no row and no schedule of the suite is called",
                       "name a schedule of the scenario");
}

Scenario read(const json& content, const std::string& path, const Changes& changes, Invalid invalid) {
  JsonInput input(content, path);
  Scenario scenario{
      .file = path, .name = read_scenario_name(input), .title = "", .experiments = {}, .comparison = {}};
  scenario.title = changes.title(input.string_or("title", scenario.name), scenario.name);
  scenario.invalid = invalid;
  scenario.timeline = input.boolean_or("timeline", false);
  input.ignore("comment");
  read_scenario_order(input);
  input.ignore("models");
  input.ignore("clusters");
  if (input.has("compare")) scenario.comparison = read_comparison(input.object("compare"));

  if (!input.has("configurations")) {
    scenario.experiments = read_experiments(input, "", "", changes);
  } else {
    const std::vector<ListedConfiguration> configurations = configurations_of(input);
    if (configurations.empty()) throw input.error("configurations", "is empty", "write at least one");
    for (const auto& [entry, choice, fields] : configurations) {
      const std::string field = entry + choice;
      JsonInput configuration(fields, field, input);
      configuration.ignore("comment");
      // The configuration's own name; the file's name is the scenario's.
      const std::string name = fields.contains("name") ? configuration.string("name") : "";
      try {
        const auto experiments = read_experiments(configuration, field, name, changes);
        configuration.done();
        scenario.experiments.insert(scenario.experiments.end(), experiments.begin(), experiments.end());
      } catch (const InputError& error) {
        if (invalid == Invalid::refuse) throw;
        say_left_out(name, error);
      }
    }
    if (scenario.experiments.empty())
      throw input.error("configurations", "are all invalid", "correct at least one of them");
  }
  input.done();
  const auto none = [&](auto reads) { return std::ranges::none_of(scenario.experiments, reads); };
  if (none([](const Experiment& one) { return one.hardware.has_value(); }))
    changes.refuse_unread("cluster", path);
  if (none([](const Experiment& one) { return model_of(one) != nullptr; }))
    changes.refuse_unread("model", path);
  // Leaving configurations out, or --set, may remove the schedule.
  if (invalid == Invalid::refuse && !changes.sets("schedules")) check_gain(scenario);
  return scenario;
}

// `scenario` with some value for each field that it lacks and needs.
json with_required(const json& scenario) {
  json all = {{"name", "any"}, {"schedules", {"1f1b"}}, {"parallel", {{"pp", 1}}}, {"microbatches", 1}};
  if (scenario.contains("global_batch")) all.erase("microbatches");
  if (scenario.contains("costs"))
    all.update({{"costs", {{"unit", json::object()}}}, {"layers_per_chunk", {1}}});
  else
    all.update({{"model", "tiny"}, {"cluster", "a800"}, {"seq", 8}});
  if (scenario.contains("run")) all.erase("cluster");
  all.merge_patch(scenario);
  return all;
}

}  // namespace

Scenario read_scenario(const std::string& word, const Changes& changes, Invalid invalid) {
  const std::string path = scenario_path(word);
  json content = read_json_file(path);
  changes.apply_to_scenario(content);
  JsonInput input(content, path);
  refuse_other_kind(content, path, "a scenario");
  if (input.has("pairs"))
    throw input.error("pairs", "makes this a scenario of GEMMs and all-reduces, without schedules",
                      "use stp simulate or stp reproduce, or remove it");
  if (invalid == Invalid::leave_out) return read(content, path, changes, invalid);
  try {
    refuse_missing(input);
  } catch (const InputError&) {
    try {
      read(with_required(content), path, changes, invalid);
    } catch (const UnknownField&) {  // often why another is missing
      throw;
    } catch (const InputError&) {
    }
    throw;
  }
  return read(content, path, changes, invalid);
}

std::vector<std::string> suite_scenarios() {
  // The paper's main tables come first.
  std::vector<std::pair<int, std::string>> found;
  for (const std::string& name : data_names("scenarios")) {
    JsonInput input = JsonInput::of_file(data_path("scenarios/" + name + ".json"));
    if (input.has("run")) continue;  // for `stp run`
    found.emplace_back(read_scenario_order(input), name);
  }
  std::sort(found.begin(), found.end());
  std::vector<std::string> names;
  for (const auto& [order, name] : found) names.push_back(name);
  return names;
}

const Experiment& configuration_at(const Scenario& scenario, int number) {
  const int configurations = static_cast<int>(scenario.experiments.size());
  if (number < 1 || number > configurations)
    throw InputError(scenario.file, "--configuration", std::to_string(number) + " is not there",
                     configurations == 1 ? "write 1, the only one"
                                         : "write a number from 1 to " + std::to_string(configurations));
  return scenario.experiments[number - 1];
}

}  // namespace stp
