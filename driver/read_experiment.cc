#include "read_experiment.h"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "baselines/registry.h"
#include "choices.h"
#include "configurations.h"
#include "read_strategy.h"
#include "stp/base/data.h"
#include "stp/cost/unit_costs.h"
#include "stp/schedule/read_schedule.h"

namespace stp {
namespace {

using nlohmann::json;

constexpr int kMaxTokensOfRun = 1 << 28;  // of a step; they are made on the host

// The schedule file in `entry`: a path relative to the scenario's folder.
std::string find_schedule_file(JsonInput& entry) {
  const std::string word = entry.string("file");
  if (!is_schedule_file(word))
    throw entry.error("file", "\"" + word + "\" does not have the ending of a schedule file",
                      "name a .json, .csv or .txt file");
  std::string path = path_in(entry.file(), word);
  if (std::error_code ignored; !std::filesystem::exists(path, ignored))
    throw entry.error("file", "there is no file " + path_of_user(path), "check the path");
  return path;
}

std::vector<ScheduleChoice> read_schedules(JsonInput& input) {
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
        entry.ignore("file");
        choice.name = entry.string_or("name", "");
        for (const GeneratorOption& option : kGeneratorOptions)
          choice.options.*option.value = entry.integer_or(option.name, 0, option.least);
      }
      choice.vocabulary = choose(entry, "vocabulary", Vocabulary::whole, kVocabularies);
      entry.done();
      if ((choice.file + choice.name).empty()) throw entry.error("name", "is missing", "add it, or file");
    }
    try {
      if (choice.file.empty()) find_generator(choice.name);
    } catch (const InputError& error) {
      throw error.moved(input.file(), input.path(key));
    }
    if (std::find(choices.begin(), choices.end(), choice) != choices.end())
      throw input.error(key, "lists " + name_of(choice) + " again", "list every schedule once");
    choices.push_back(choice);
  }
  if (choices.empty()) throw input.error("schedules", "is empty", "name at least one schedule");
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

// Tokens of a sample in the model's vision encoder; 0 without one.
int read_vision_tokens(JsonInput& input, const ModelConfig& model) {
  if (!model.has_vision()) {
    if (input.has("vision_tokens"))
      throw input.error("vision_tokens", "is given, but " + model.name + " has no vision encoder",
                        "remove it, or use a model with a vision_config");
    return 0;
  }
  return input.integer("vision_tokens", 1, 1 << 24);
}

// The content of a cluster's file, with the configuration's values in place of the file's.
json replaced_values(JsonInput& input, json profile) {
  JsonInput values = input.object("cluster_values");
  for (const std::string& key : values.keys()) {
    const json& value = values.value(key);
    if (!profile.contains(key) || !profile[key].is_object() || !profile[key].contains("value"))
      throw values.error(key, "is no value of " + input.string("cluster"),
                         "name a value of the profile (docs/data.md)");
    profile[key] = {{"value", value}, {"source", "cluster_values of the scenario"}};
  }
  return profile;
}

// Refuses sequences longer than what a config.json's sliding window lets tokens see.
void check_window(const JsonInput& input, const NamedData& model, int seq) {
  if (const int window = model.import.window; window > 0 && seq > window)
    throw input.error("seq",
                      "is more than the sliding window of " + std::to_string(window) + " tokens in " +
                          model.path + ", and the suite attends to all tokens",
                      "use at most " + std::to_string(window) + ", or a model file of stp model import");
}

// Reads the options of Megatron-Core's recipes.
Recipe read_recipe(JsonInput& input, const Experiment::Hardware& hardware, Strategy& strategy) {
  Recipe recipe;
  if (!input.has("recipe")) return recipe;
  if (!uses_transformer_engine(hardware.implementation))
    throw input.error("recipe",
                      "is of Megatron-Core with Transformer Engine, and implementation is " +
                          word_of(hardware.implementation, kImplementations),
                      "set implementation to megatron-te, or leave it out");
  JsonInput fields = input.object("recipe");
  recipe.bucket_parameters = fields.number_or("bucket_parameters", 0, 1, 1e12);
  recipe.gathers_in_step = fields.boolean_or("gathers_in_step", false);
  recipe.state_bytes = fields.integer_or("state_bytes", recipe.state_bytes, 6, 12);
  if (recipe.state_bytes != 12 && recipe.state_bytes != 10 && recipe.state_bytes != 6)
    throw fields.error("state_bytes", "is no number of bytes that Megatron-Core's optimizers keep",
                       "write 12 (fp32), 10 (master weights as remainders) or 6 (bf16 moments, too)");
  if (const bool small = recipe.state_bytes != Recipe().state_bytes;
      !strategy.zero && (small || recipe.gathers_in_step))
    throw fields.error(small ? "state_bytes" : "gathers_in_step",
                       "is of the distributed optimizer, and zero is 0", "set zero to 1, or leave it out");
  for (size_t unit = 0; unit < 2; ++unit)
    strategy.ring_scatter[unit] = choose(fields, kScatterMethodFields[unit], false, kScatterMethods);
  if (fields.has("overlap_sms")) {
    JsonInput sms = fields.object("overlap_sms");
    for (const auto& [name, of] : kOverlapSms)
      for (size_t unit = 0; unit < 2; ++unit)
        (recipe.overlap_sms.*of)[unit] =
            sms.integer_or(name[unit], (recipe.overlap_sms.*of)[unit], 0, hardware.profile.sms - 1);
    sms.done();
  }
  fields.done();
  return recipe;
}

// Reads what `model_data` holds, and the length of samples.
void read_model_and_samples(JsonInput& input, SampledModel& of) {
  of.model = read_model(*of.model_data.content, of.model_data.path);
  of.seq = input.integer("seq", 1, 1 << 24);
  check_window(input, of.model_data, of.seq);
  of.vision_tokens = read_vision_tokens(input, of.model);
}

Experiment::Hardware read_hardware(JsonInput& input, const Changes& changes, Strategy& strategy,
                                   const Experiment::Hardware* known) {
  Experiment::Hardware hardware{};
  if (known != nullptr) {
    hardware = *known;
    for (const char* key : {"model", "cluster", "cluster_values"}) input.ignore(key);
  } else {
    hardware.model_data = read_named_data(input, "model", "models", changes);
    hardware.cluster_data = read_named_data(input, "cluster", "profiles", changes);
    hardware.profile = read_profile(*hardware.cluster_data.content, hardware.cluster_data.path);
    if (input.has("cluster_values")) {
      hardware.cluster_values = input.shared_value("cluster_values");
      hardware.profile = read_profile(replaced_values(input, *hardware.cluster_data.content),
                                      input.file() + ": " + input.path("cluster_values"));
    }
  }
  read_model_and_samples(input, hardware);
  // Its kernels changed more than others between 2022 and today: no choice fits all.
  if (hardware.model.family == Family::gpt && !input.has("implementation"))
    throw input.error(
        "implementation", "is missing, and a megatron-gpt's steps differ by 16 % between implementations",
        "write megatron-2022 (before FlashAttention), megatron (unfused), megatron-te (Transformer "
        "Engine) or suite (fused)");
  hardware.implementation = choose(input, "implementation", Implementation::megatron, kImplementations);
  hardware.contention = input.boolean_or("contention", true);
  hardware.sends_share_adapter = input.boolean_or("sends_share_adapter", true);
  hardware.scatter_transfers = input.boolean_or("scatter_transfers", false);
  hardware.model_gradients = choose(input, "gradients", false, kGradients);
  hardware.recipe = read_recipe(input, hardware, strategy);
  return hardware;
}

// Checks that the numbers of layers by virtual stage add up to all layers.
void check_layers(const JsonInput& input, const Experiment& experiment, const std::string& whose, int all) {
  const auto& layers = experiment.layers_per_chunk;
  const int64_t sum = std::accumulate(layers.begin(), layers.end(), int64_t{0});
  if (!layers.empty() && sum != all)
    throw input.error("layers_per_chunk", "adds up to " + std::to_string(sum) + " layers, but " + whose,
                      "divide all layers over the virtual stages");
}

void check_model(const JsonInput& input, const Experiment& experiment, const SampledModel& of) {
  const ModelConfig& model = of.model;
  try {
    check_shardable(model, experiment.strategy.tp);
    check_divisible(model, experiment.strategy, of.seq, of.vision_tokens);
  } catch (const InputError& error) {
    throw error.below(experiment.field).in_file(input.file());
  }
  if (experiment.strategy.pp > model.layers)
    throw input.error("parallel.pp",
                      std::to_string(experiment.strategy.pp) + " ranks are more than the " +
                          std::to_string(model.layers) + " layers of " + model.name,
                      "use at most as many ranks as layers");
  check_layers(input, experiment, model.name + " has " + std::to_string(model.layers), model.layers);
}

// Reads the configuration's model and its training.
Experiment::Run read_run(JsonInput& input, const Changes& changes) {
  Experiment::Run run{};
  input.ignore("cluster");  // of simulations, so that one file is for both
  run.model_data = read_named_data(input, "model", "models", changes);
  read_model_and_samples(input, run);
  if (run.model.variant.dropout > 0)
    throw input.error("model", run.model.name + " has a dropout, which runs do not have",
                      "use a model without it, or simulate");
  if (const int rotated = run.model.rotary_dim(); run.model.rotary() && (rotated == 0 || rotated % 2 != 0))
    throw input.error("model",
                      run.model.name + " has heads with " + std::to_string(rotated) +
                          " elements for the rotary embedding, which takes pairs of them",
                      "use another head_dim or partial_rotary_factor");
  if (run.model.has_vision() && run.model.encoder().head_dim % 2 != 0)
    throw input.error("model",
                      run.model.name + " has heads of " + std::to_string(run.model.encoder().head_dim) +
                          " elements in its vision encoder, and rotary embedding takes pairs of them",
                      "use an even vision_config.embed_dim / num_heads");
  JsonInput options = input.object("run");
  run.type = choose(options, "type", DType::f32, kTypes);
  run.steps = options.integer_or("steps", 1, 1, 1 << 20);
  run.warmup = options.integer_or("warmup", 0, 0, 1 << 20);
  run.text = options.string_or("text", "");
  if (!run.text.empty()) run.text = path_of_user(path_in(input.file(), run.text));
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
  return run;
}

void read_unit_costs(JsonInput& input, Experiment& experiment) {
  JsonInput costs = input.object("costs");
  experiment.unit_costs = unit_cost_table(costs.object("unit"), experiment.strategy);
  experiment.unit_costs_as_read = costs.shared_value("unit");
  costs.done();
  if (!experiment.schedule_costs) experiment.schedule_costs = PassCosts{};
  const int layers = model_layers(experiment);
  if (input.has("layers_per_chunk") && input.value("layers_per_chunk").is_string()) {
    if (layers == 0)
      throw input.error("layers_per_chunk", "is a word, but unit costs have no model to divide",
                        "write one number of layers per virtual stage, or give layer_costs");
    return;
  }
  if (experiment.layers_per_chunk.empty())
    throw input.error("layers_per_chunk", "is missing or empty",
                      "write one number of layers per virtual stage");
  if (layers > 0) check_layers(input, experiment, "layer_costs has " + std::to_string(layers), layers);
}

void read_layers(JsonInput& input, Experiment& experiment) {
  if (!input.value("layers_per_chunk").is_string()) {
    experiment.layers_per_chunk = input.integers("layers_per_chunk", 0, INT16_MAX);
    return;
  }
  const std::string word = input.string("layers_per_chunk");
  const auto* const choice = std::ranges::find(kSplits, word, &Named<LayerSplit>::name);
  if (choice == std::end(kSplits))
    throw input.error("layers_per_chunk", "\"" + word + "\" is not a choice",
                      "write \"even\", \"balanced\", \"paper\", or one number per virtual stage");
  experiment.split = choice->choice;
  if (experiment.split == LayerSplit::balanced && input.has("run"))
    throw input.error("layers_per_chunk",
                      "is balanced, but a run has no cluster whose costs could be balanced",
                      "write \"even\", or the layers_per_chunk of a record of stp simulate");
}

// Reads the factors of layers and microbatches. The caller checks the latter when their number is known.
void read_factors(JsonInput& input, Experiment& experiment) {
  constexpr double kMost = 1e6;
  if (input.has("layer_costs")) experiment.layer_costs = input.numbers("layer_costs", 0, kMost);
  if (input.has("microbatch_costs"))
    experiment.microbatch_costs = input.numbers("microbatch_costs", 0, kMost);
  const int layers = experiment.hardware ? experiment.hardware->model.layers : 0;
  const auto given = experiment.layer_costs.size();
  if (input.has("layer_costs") && (given == 0 || (layers > 0 && given != size_t(layers))))
    throw input.error("layer_costs",
                      "has " + std::to_string(given) + " entries" +
                          (layers > 0 ? ", but " + experiment.hardware->model.name + " has " +
                                            std::to_string(layers) + " layers"
                                      : ""),
                      "write one factor per layer");
  if (!experiment.microbatch_costs.empty() && experiment.strategy.offload > 0)
    throw input.error("microbatch_costs", "is not built with offload", "leave one of them out");
}

std::vector<std::string> missing_fields(JsonInput& input) {
  std::vector<std::string> missing;
  const auto need = [&](const char* key) {
    if (!input.has(key)) missing.emplace_back(key);
  };
  const auto need_within = [&](const char* object, const char* key) {
    if (!input.object(object).has(key)) missing.push_back(std::string(object) + "." + key);
  };
  need("schedules");
  if (input.has("parallel"))
    need_within("parallel", "pp");
  else
    need("parallel");
  if (!input.has("global_batch")) need("microbatches");
  const bool run = input.has("run"), hardware = input.has("model") || input.has("cluster");
  if (input.has("costs")) {
    need_within("costs", "unit");
    need("layers_per_chunk");
  } else if (run || hardware) {
    need("model");
    if (!run) need("cluster");
    need("seq");
  } else {
    need("costs");
  }
  return missing;
}

void check_braid_by_times(JsonInput& input, const Experiment& experiment) {
  const auto refuse = [&](const std::string& problem) {
    throw input.error("braid", "is " + word_of(experiment.braid, kBraids) + ", " + problem,
                      "use static or sequential");
  };
  if (experiment.run) refuse("which needs times, and runs have none");
  if (!experiment.layer_costs.empty() || !experiment.microbatch_costs.empty())
    refuse("one order for all layers and microbatches, which layer_costs and microbatch_costs make unlike");
  if (experiment.braid == BraidPolicy::paired && experiment.strategy.tp_overlap == TpOverlap::megatron)
    refuse("whose barriers are between units, and tp_overlap megatron divides them");
}

// Reads one configuration, except its number of microbatches.
Experiment read_experiment(JsonInput& input, const std::string& field, const Changes& changes,
                           const Experiment::Hardware* known) {
  Experiment experiment;
  experiment.field = field;
  experiment.schedules = read_schedules(input);
  experiment.schedules_as_read = input.shared_value("schedules");
  read_strategy(input, experiment);
  experiment.microbatch_size = input.integer_or("microbatch_size", 1, 1, 1 << 20);
  experiment.chunks = input.integer_or("chunks", 0, 1, kMaxChunks);
  experiment.release = choose(input, "release", Release::chain, kReleases);
  experiment.backward = choose(input, "backward", BackwardOrder::suite, kBackwards);
  experiment.braid = choose(input, "braid", BraidPolicy::static_merge, kBraids);
  experiment.merge_backward = input.boolean_or("merge_backward", false);
  experiment.freed_at = choose(input, "freed_at", FreedAt::W, kFreedAt);
  if (input.has("layers_per_chunk")) read_layers(input, experiment);
  if (input.has("schedule_costs"))
    experiment.schedule_costs = read_pass_costs(input.object("schedule_costs"));

  if (input.has("costs")) {
    read_factors(input, experiment);
    read_unit_costs(input, experiment);
  } else if (input.has("run")) {
    experiment.run = read_run(input, changes);
    if (!experiment.schedule_costs) experiment.schedule_costs = PassCosts{};
  } else {
    experiment.hardware = read_hardware(input, changes, experiment.strategy, known);
    experiment.hardware->model = padded(experiment.hardware->model, experiment.strategy.tp);
    read_factors(input, experiment);
    if (experiment.strategy.cp > 1 && experiment.hardware->implementation == Implementation::megatron_2022)
      throw input.error("parallel.cp", "is more than 1, and megatron-2022 attends to whole sequences",
                        "use another implementation, or parallel.cp 1");
  }
  if (const SampledModel* const of = model_of(experiment)) {
    check_model(input, experiment, *of);
    read_strategy_of_units(input, experiment, of->model, of->seq);
  }
  if (experiment.freed_at == FreedAt::both && !experiment.hardware)
    throw input.error("freed_at", "is both, which counts bytes of a model on hardware", "write W or I");
  if (is_by_times(experiment.braid)) check_braid_by_times(input, experiment);
  return experiment;
}

// The number of `key`, or its list of numbers.
std::vector<int> read_counts(JsonInput& input, const std::string& key, int most) {
  if (!input.value(key).is_array()) return {input.integer(key, 1, most)};
  std::vector<int> counts = input.integers(key, 1, most);
  if (counts.empty()) throw input.error(key, "is empty", "write at least one number");
  if (std::set(counts.begin(), counts.end()).size() < counts.size())
    throw input.error(key, "lists a number again", "list every number once");
  return counts;
}

// The numbers of microbatches that make up global batches.
std::vector<int> read_global_batch(JsonInput& input, const Experiment& experiment) {
  if (input.has("microbatches"))
    throw input.error("global_batch", "is given, and so is microbatches",
                      "remove one of them (--set microbatches=null)");
  const int64_t samples =
      int64_t{experiment.microbatch_size} * experiment.strategy.dp;  // of one microbatch on all replicas
  std::vector<int> counts = read_counts(input, "global_batch", std::numeric_limits<int>::max());
  for (int& count : counts) {
    const std::string problem = std::to_string(count) + " samples ";
    if (count % samples != 0)
      throw input.error(
          "global_batch",
          problem + "do not divide by the " + std::to_string(samples) + " of microbatch_size * parallel.dp",
          "use a multiple");
    count = static_cast<int>(count / samples);
    if (count > kMaxMicrobatches)
      throw input.error("global_batch",
                        problem + "are " + std::to_string(count) + " microbatches, more than the limit of " +
                            std::to_string(kMaxMicrobatches),
                        "use fewer samples");
  }
  return counts;
}

}  // namespace

void refuse_missing(JsonInput& input) {
  std::vector<std::string> missing;
  if (!input.has("name")) missing.emplace_back("name");
  std::map<std::string, std::vector<std::string>> places;  // by field: the configurations that lack it
  size_t count = 1;
  if (!input.has("configurations")) {
    for (const std::string& field : missing_fields(input)) places[field] = {field};
  } else {
    const std::vector<ListedConfiguration> configurations = configurations_of(input);
    count = configurations.size();
    for (const auto& [entry, choice, fields] : configurations) {
      JsonInput configuration(fields, entry, input);
      for (const std::string& field : missing_fields(configuration))
        places[field].push_back(entry + "." + field);
    }
  }
  for (auto& [field, of] : places) {
    if (of.size() == count)
      missing.push_back(field);
    else
      missing.insert(missing.end(), of.begin(), std::unique(of.begin(), of.end()));  // once per entry
  }
  if (missing.empty()) return;
  std::string problem = missing.size() == 1 ? "is missing" : "are missing",
              remedy = missing.size() == 1 ? "add it" : "add them";
  if (places.contains("costs")) {
    problem += ", and so is model";
    remedy = "write costs.unit for a unit-cost scenario, or model, cluster and seq for a hardware one";
  }
  throw InputError(input.file(), joined(missing), problem, remedy);
}

std::vector<Experiment> read_experiments(JsonInput& input, const std::string& field, const std::string& name,
                                         const Changes& changes, const Experiment::Hardware* known) {
  Experiment one = read_experiment(input, field, changes, known);
  one.name = name;
  one.of_global_batch = input.has("global_batch");
  const std::vector<int> counts = one.of_global_batch ? read_global_batch(input, one)
                                                      : read_counts(input, "microbatches", kMaxMicrobatches);
  std::vector<Experiment> experiments;
  for (const int microbatches : counts) {
    if (const size_t given = one.microbatch_costs.size();
        !one.run && input.has("microbatch_costs") && given != size_t(microbatches))
      throw input.error(
          "microbatch_costs",
          "has " + std::to_string(given) + " entries for " + std::to_string(microbatches) + " microbatches",
          "write one factor per microbatch");
    // A double, because the product of the largest values exceeds an integer.
    const double tokens =
        1.0 * microbatches * one.microbatch_size * one.strategy.dp * (one.run ? one.run->seq : 0);
    if (tokens > kMaxTokensOfRun)
      throw input.error("microbatches",
                        "make a step of over " + std::to_string(kMaxTokensOfRun) +
                            " tokens with microbatch_size, parallel.dp and seq, the limit of a run",
                        "write less of one of them");
    experiments.push_back(one);
    experiments.back().microbatches = microbatches;
  }
  return experiments;
}

}  // namespace stp
