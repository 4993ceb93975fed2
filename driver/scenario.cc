#include "scenario.h"

#include <algorithm>
#include <filesystem>
#include <numeric>

#include "stp/base/data.h"
#include "stp/base/json_input.h"
#include "stp/schedule/read_schedule.h"

namespace stp {
namespace {

using nlohmann::json;

constexpr size_t kLongestName = 100;

template <typename Choice>
struct Named {
  const char* name;
  Choice choice;
};
constexpr Named<Release> kReleases[] = {
    {"chain", Release::chain}, {"block", Release::block}, {"released", Release::released}};
constexpr Named<BackwardOrder> kBackwards[] = {{"suite", BackwardOrder::suite},
                                               {"megatron", BackwardOrder::megatron}};
constexpr Named<BraidPolicy> kBraids[] = {{"static", BraidPolicy::static_merge},
                                          {"sequential", BraidPolicy::sequential}};
constexpr Named<bool> kFreedAt[] = {{"W", false}, {"I", true}};
constexpr Named<DType> kTypes[] = {
    {"float32", DType::f32}, {"float64", DType::f64}, {"bfloat16", DType::bf16}};
constexpr Named<Implementation> kImplementations[] = {{"megatron", Implementation::megatron},
                                                      {"suite", Implementation::suite},
                                                      {"megatron-2022", Implementation::megatron_2022}};
constexpr Named<Recompute> kRecomputes[] = {
    {"none", Recompute::none}, {"selective", Recompute::selective}, {"full", Recompute::full}};

template <typename Choice, size_t n>
Choice choose(JsonInput& input, const std::string& key, const char* fallback,
              const Named<Choice> (&choices)[n], json& as_run) {
  const std::string word = input.string_or(key, fallback);
  as_run[key] = word;
  std::string list;
  for (const auto& each : choices) {
    if (word == each.name) return each.choice;
    list += (list.empty() ? "" : ", ") + std::string(each.name);
  }
  throw input.error(key, "\"" + word + "\" is not a choice", "write one of " + list);
}

// The schedule file that `entry` names: a path, relative to the scenario's folder.
std::string find_schedule_file(JsonInput& entry) {
  namespace fs = std::filesystem;
  const std::string word = entry.string("file");
  if (!is_schedule_file(word))
    throw entry.error("file", "\"" + word + "\" does not end as a schedule file does",
                      "name a .json, .csv or .txt file");
  const fs::path path = fs::path(entry.file()).parent_path() / word;
  std::error_code ignored;
  if (!fs::exists(path, ignored))
    throw entry.error("file", "there is no file " + path.string(), "check the path");
  return path.string();
}

std::vector<ScheduleChoice> read_schedules(JsonInput& input, json& as_run) {
  std::vector<ScheduleChoice> choices;
  const json& entries = input.array("schedules");
  for (size_t i = 0; i < entries.size(); ++i) {
    const std::string key = "schedules[" + std::to_string(i) + "]";
    ScheduleChoice choice;
    if (entries[i].is_string()) {
      choice.name = entries[i].get<std::string>();
    } else {
      JsonInput entry(entries[i], input.file(), input.path(key));
      if (entry.has("file")) {
        choice.file = find_schedule_file(entry);
      } else {
        choice.name = entry.string("name");
        choice.memory_limit = entry.integer_or("memory_limit", 0, 1);
      }
      entry.done();
    }
    choices.push_back(choice);
  }
  if (choices.empty()) throw input.error("schedules", "is empty", "name at least one schedule");
  as_run["schedules"] = entries;
  return choices;
}

PassCosts read_pass_costs(JsonInput input) {
  PassCosts costs;
  constexpr double kLongest = 1e9;
  costs.F = input.number_or("F", costs.F, 0, kLongest);
  costs.I = input.number_or("I", costs.I, 0, kLongest);
  costs.W = input.number_or("W", costs.W, 0, kLongest);
  costs.p2p = input.number_or("p2p", costs.p2p, 0, kLongest);
  input.done();
  return costs;
}

json to_json(const PassCosts& costs) {
  return {{"F", costs.F}, {"I", costs.I}, {"W", costs.W}, {"p2p", costs.p2p}};
}

Experiment::Hardware read_hardware(JsonInput& input, json& as_run) {
  Experiment::Hardware hardware{};
  const std::string model = input.string("model"), cluster = input.string("cluster");
  const std::string model_file = find_data_file(model, "models", input.file(), input.path("model"));
  const std::string profile_file = find_data_file(cluster, "profiles", input.file(), input.path("cluster"));
  hardware.model = read_model(model_file);
  hardware.profile = read_profile(profile_file);
  hardware.model_json = read_json_file(model_file);
  hardware.profile_json = read_json_file(profile_file);
  hardware.seq = input.integer("seq", 1, 1 << 24);
  hardware.implementation = choose(input, "implementation", "megatron", kImplementations, as_run);
  hardware.contention = input.boolean_or("contention", true);
  hardware.sequence_parallel = input.boolean_or("sequence_parallel", false);
  hardware.recompute = choose(input, "recompute", "none", kRecomputes, as_run);
  hardware.scatter_transfers = input.boolean_or("scatter_transfers", false);
  as_run.update({{"model", model},
                 {"cluster", cluster},
                 {"seq", hardware.seq},
                 {"contention", hardware.contention},
                 {"sequence_parallel", hardware.sequence_parallel},
                 {"scatter_transfers", hardware.scatter_transfers}});
  return hardware;
}

void check_model(const JsonInput& input, const Experiment& experiment, const ModelConfig& model) {
  try {
    check_shardable(model, experiment.tp);
  } catch (const InputError& error) {
    throw error.below(experiment.field).in_file(input.file());
  }
  if (experiment.pp > model.layers)
    throw input.error("parallel.pp",
                      std::to_string(experiment.pp) + " ranks are more than the " +
                          std::to_string(model.layers) + " layers of " + model.name,
                      "use at most as many ranks as layers");
  const auto& layers = experiment.layers_per_chunk;
  const int64_t sum = std::accumulate(layers.begin(), layers.end(), int64_t{0});
  if (!layers.empty() && sum != model.layers)
    throw input.error("layers_per_chunk",
                      "adds up to " + std::to_string(sum) + " layers, but " + model.name + " has " +
                          std::to_string(model.layers),
                      "divide all layers over the virtual stages");
}

// The configuration's model, and how it is trained.
Experiment::Run read_run(JsonInput& input, json& as_run) {
  Experiment::Run run{};
  const std::string model = input.string("model");
  const std::string model_file = find_data_file(model, "models", input.file(), input.path("model"));
  run.model = read_model(model_file);
  run.model_json = read_json_file(model_file);
  run.seq = input.integer("seq", 1, 1 << 24);
  JsonInput options = input.object("run");
  json chosen;
  run.type = choose(options, "type", "float32", kTypes, chosen);
  run.steps = options.integer_or("steps", 1, 1, 1 << 20);
  run.warmup = options.integer_or("warmup", 0, 0, 1 << 20);
  run.text = options.string_or("text", "");
  run.initialisation.seed = options.integer_or("seed", 1, 0, INT32_MAX);
  run.initialisation.weight_deviation = options.number_or("weight_deviation", 0.02, 0, 1e3);
  run.initialisation.bias_deviation = options.number_or("bias_deviation", 0, 0, 1e3);
  run.initialisation.gain_deviation = options.number_or("gain_deviation", 0, 0, 1e3);
  run.optimizer.learning_rate = options.number_or("learning_rate", run.optimizer.learning_rate, 0, 1e3);
  run.optimizer.weight_decay = options.number_or("weight_decay", 0, 0, 1e3);
  run.clip_norm = options.number_or("clip_norm", 1, 1e-12, 1e12);
  run.parity = options.boolean_or("parity", false);
  run.skip_refused = options.boolean_or("skip_refused", false);
  if (!run.text.empty() && run.model.vocab < 256)
    throw options.error(
        "text",
        "has bytes, but " + run.model.name + " has a vocabulary of " + std::to_string(run.model.vocab),
        "use a model with a vocab_size of 256 or more, or leave text out");
  options.done();
  chosen.update({{"steps", run.steps},
                 {"warmup", run.warmup},
                 {"seed", run.initialisation.seed},
                 {"weight_deviation", run.initialisation.weight_deviation},
                 {"bias_deviation", run.initialisation.bias_deviation},
                 {"gain_deviation", run.initialisation.gain_deviation},
                 {"learning_rate", run.optimizer.learning_rate},
                 {"weight_decay", run.optimizer.weight_decay},
                 {"clip_norm", run.clip_norm},
                 {"parity", run.parity},
                 {"skip_refused", run.skip_refused}});
  if (!run.text.empty()) chosen["text"] = run.text;
  as_run.update({{"model", model}, {"seq", run.seq}, {"run", chosen}});
  return run;
}

// Reads one configuration but for its number of microbatches.
Experiment read_experiment(JsonInput& input, const std::string& field) {
  Experiment experiment;
  experiment.field = field;
  json& as_run = experiment.as_run;
  experiment.schedules = read_schedules(input, as_run);

  JsonInput parallel = input.object("parallel");
  experiment.pp = parallel.integer("pp", 1, kMaxRanks);
  experiment.tp = parallel.integer_or("tp", 1, 1, 1 << 16);
  as_run["parallel"] = {{"pp", experiment.pp}, {"tp", experiment.tp}};
  if (input.has("run")) {
    experiment.dp = parallel.integer_or("dp", 1, 1, 1 << 16);
    as_run["parallel"]["dp"] = experiment.dp;
    constexpr int64_t kMostRanks = 256;  // each is several threads
    if (int64_t{experiment.pp} * experiment.tp * experiment.dp > kMostRanks)
      throw input.error("parallel",
                        "asks for more ranks than the " + std::to_string(kMostRanks) + " that run here",
                        "use fewer");
  }
  parallel.done();

  experiment.microbatch_size = input.integer_or("microbatch_size", 1, 1, 1 << 20);
  experiment.chunks = input.integer_or("chunks", 0, 1, kMaxChunks);
  experiment.release = choose(input, "release", "chain", kReleases, as_run);
  experiment.backward = choose(input, "backward", "suite", kBackwards, as_run);
  experiment.braid = choose(input, "braid", "static", kBraids, as_run);
  experiment.freed_at_I = choose(input, "freed_at", "W", kFreedAt, as_run);
  if (input.has("layers_per_chunk")) {
    experiment.layers_per_chunk = input.integers("layers_per_chunk", 0, INT16_MAX);
    as_run["layers_per_chunk"] = experiment.layers_per_chunk;
  }
  as_run["microbatch_size"] = experiment.microbatch_size;
  if (experiment.chunks > 0) as_run["chunks"] = experiment.chunks;
  if (input.has("schedule_costs"))
    experiment.schedule_costs = read_pass_costs(input.object("schedule_costs"));

  if (input.has("costs")) {
    JsonInput costs = input.object("costs");
    experiment.unit_costs = unit_cost_table(costs.object("unit"));
    as_run["costs"] = input.value("costs");
    costs.done();
    if (!experiment.schedule_costs) experiment.schedule_costs = PassCosts{};
    if (experiment.layers_per_chunk.empty())
      throw input.error("layers_per_chunk", "is missing or empty",
                        "write one number of layers per virtual stage");
  } else if (input.has("run")) {
    experiment.run = read_run(input, as_run);
    check_model(input, experiment, experiment.run->model);
    if (!experiment.schedule_costs) experiment.schedule_costs = PassCosts{};
  } else if (input.has("model")) {
    experiment.hardware = read_hardware(input, as_run);
    check_model(input, experiment, experiment.hardware->model);
    if (const int node = experiment.hardware->profile.gpus_per_node; experiment.tp > node)
      throw input.error("parallel.tp",
                        std::to_string(experiment.tp) + " is more than the " + std::to_string(node) +
                            " GPUs of a node, and the profile does not describe all-reduces between nodes",
                        "use at most " + std::to_string(node));
    if (experiment.hardware->sequence_parallel && experiment.hardware->seq % experiment.tp != 0)
      throw input.error("sequence_parallel",
                        "cannot divide " + std::to_string(experiment.hardware->seq) + " tokens by " +
                            std::to_string(experiment.tp) + " tensor-parallel ranks",
                        "make seq a multiple of parallel.tp");
  } else {
    throw input.error(
        "costs", "is missing, and so is model",
        "write costs.unit for a unit-cost scenario, or model, cluster and seq for a hardware one");
  }
  if (experiment.schedule_costs) as_run["schedule_costs"] = to_json(*experiment.schedule_costs);
  return experiment;
}

// A configuration with several numbers of microbatches is as many experiments.
void read_experiments(JsonInput& input, const std::string& field, std::vector<Experiment>& experiments) {
  const Experiment one = read_experiment(input, field);
  std::vector<int> counts;
  if (input.value("microbatches").is_array()) {
    counts = input.integers("microbatches", 1, kMaxMicrobatches);
    if (counts.empty()) throw input.error("microbatches", "is empty", "write at least one number");
  } else {
    counts = {input.integer("microbatches", 1, kMaxMicrobatches)};
  }
  for (const int microbatches : counts) {
    experiments.push_back(one);
    experiments.back().microbatches = microbatches;
    experiments.back().as_run["microbatches"] = microbatches;
  }
}

}  // namespace

std::string name_of(const ScheduleChoice& choice) {
  return choice.file.empty() ? choice.name : std::filesystem::path(choice.file).stem().string();
}

std::string scenario_path(const std::string& word) {
  std::error_code ignored;
  if (word.ends_with(".json") || std::filesystem::exists(word, ignored)) return word;
  return find_data_file(word, "scenarios", "", "SCENARIO");
}

std::string read_scenario_name(JsonInput& input) {
  std::string name = input.string("name");
  const auto unfit = [](char c) { return c == '/' || std::iscntrl(static_cast<unsigned char>(c)) != 0; };
  if (name.empty() || name[0] == '.' || name.size() > kLongestName ||
      std::any_of(name.begin(), name.end(), unfit))
    throw input.error(
        "name", "cannot name a result file",
        "use 1 to " + std::to_string(kLongestName) + " characters without /, none of them first a dot");
  return name;
}

json Scenario::as_run() const {
  json configurations = json::array();
  for (const Experiment& experiment : experiments) configurations.push_back(experiment.as_run);
  json scenario = {{"name", name}, {"title", title}, {"configurations", configurations}};
  if (comparison) scenario["compare"] = to_json(*comparison);
  // What the names of models and clusters stood for.
  for (const Experiment& experiment : experiments) {
    if (experiment.run) scenario["models"][experiment.as_run.at("model")] = experiment.run->model_json;
    if (!experiment.hardware) continue;
    scenario["models"][experiment.as_run.at("model")] = experiment.hardware->model_json;
    scenario["clusters"][experiment.as_run.at("cluster")] = experiment.hardware->profile_json;
  }
  return scenario;
}

Scenario read_scenario(const std::string& word) {
  const std::string path = scenario_path(word);
  const json content = read_json_file(path);
  JsonInput input(content, path);
  if (input.has("pairs"))
    throw input.error("pairs", "makes this a scenario of products and all-reduces, without schedules",
                      "use stp simulate or stp reproduce, or remove it");
  Scenario scenario{
      .file = path, .name = read_scenario_name(input), .title = "", .experiments = {}, .comparison = {}};
  scenario.title = input.string_or("title", scenario.name);
  scenario.timeline = input.boolean_or("timeline", false);
  input.ignore("comment");
  input.ignore("order");
  // A record's scenario says what its names stood for; run again, they are looked up again.
  input.ignore("models");
  input.ignore("clusters");
  if (input.has("compare")) scenario.comparison = read_comparison(input.object("compare"));

  if (!input.has("configurations")) {
    read_experiments(input, "", scenario.experiments);
  } else {
    const json& configurations = input.array("configurations");
    if (configurations.empty()) throw input.error("configurations", "is empty", "write at least one");
    for (size_t i = 0; i < configurations.size(); ++i) {
      const std::string field = "configurations[" + std::to_string(i) + "]";
      JsonInput configuration(configurations[i], field, input);
      read_experiments(configuration, field, scenario.experiments);
      configuration.done();
    }
  }
  input.done();
  return scenario;
}

std::vector<std::string> suite_scenarios() {
  // The paper's main tables come first: `order` in the file, 100 where left out.
  std::vector<std::pair<int, std::string>> found;
  for (const auto& entry : std::filesystem::directory_iterator(data_path("scenarios"))) {
    if (entry.path().extension() != ".json") continue;
    const json content = read_json_file(entry.path());
    if (content.contains("run")) continue;  // for `stp run`
    found.emplace_back(JsonInput(content, entry.path()).integer_or("order", 100, 0), entry.path().stem());
  }
  std::sort(found.begin(), found.end());
  std::vector<std::string> names;
  for (const auto& [order, name] : found) names.push_back(name);
  return names;
}

}  // namespace stp
