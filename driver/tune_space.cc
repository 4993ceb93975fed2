#include "tune_space.h"

#include <algorithm>
#include <climits>

#include "baselines/registry.h"
#include "choices.h"
#include "read_experiment.h"
#include "stp/base/data.h"

namespace stp {
namespace {

using nlohmann::json;

constexpr int kMostChunks = 8;        // unless asked for: Megatron-Core's largest recipe
constexpr int kMostMicrobatch = 8;    // samples, unless asked for
constexpr size_t kMostPlans = 50000;  // of 10 kB each

// A field that a flag gives, too.
struct Field {
  json& object;      // that has it, or not
  std::string path;  // ends with its key
  std::string flag;

  [[nodiscard]] std::string key() const { return path.substr(path.rfind('.') + 1); }
  [[nodiscard]] bool given() const { return object.contains(key()); }
  // Both would be a contradiction, or could become one.
  void refuse_both(const std::string& file) const {
    if (given()) throw InputError(file, path, "is given, and so is " + flag, "leave one of them out");
  }
};

// The axis's values: of the flag, or of the scenario (one value or a list), or none. Takes them from the
// scenario.
template <typename Value>
std::vector<Value> axis(std::vector<Value> values, const Field& field, const std::string& file) {
  if (!values.empty()) field.refuse_both(file);
  if (field.given()) {
    const json& found = field.object[field.key()];
    const json whole = found.is_array() ? found : json::array({found});
    constexpr bool integer = std::is_integral_v<Value>, number = std::is_arithmetic_v<Value>;
    constexpr const char* kind = integer ? "whole number" : number ? "number" : "word";
    const auto fits = [](const json& each) {
      if (integer) return each.is_number_integer() && each.get<double>() == each.get<int>();
      return number ? each.is_number() : each.is_string();
    };
    if (whole.empty() || !std::ranges::all_of(whole, fits))
      throw InputError(file, field.path, json_text(found) + " is no " + kind + ", or list of them",
                       "write what " + field.flag + " takes");
    values = whole.get<std::vector<Value>>();
    field.object.erase(field.key());
  }
  std::ranges::sort(values);
  values.erase(std::unique(values.begin(), values.end()), values.end());
  return values;
}

void check_numbers(const std::vector<int>& values, const std::string& flag, int most) {
  for (const int value : values)
    if (value < 1 || value > most)
      throw InputError("", flag, std::to_string(value) + " is not a number from 1 to " + std::to_string(most),
                       "write one or several, separated by commas");
}

void check_words(const std::vector<std::string>& words, const char* flag,
                 const std::vector<std::string>& known, const std::string& why = "") {
  for (const std::string& word : words)  // `known` has block-1 for all
    if (std::ranges::find(known, block_layers(word) > 0 ? "block-1" : word) == known.end())
      throw InputError("", flag, "there is no \"" + word + "\"" + why,
                       did_you_mean(word, known) + "there are " + joined(known));
}

std::vector<int> divisors(int number) {
  std::vector<int> all;
  for (int each = 1; each <= number; ++each)
    if (number % each == 0) all.push_back(each);
  return all;
}

template <typename Value>
bool has(const std::vector<Value>& values, const std::type_identity_t<Value>& value) {
  return std::ranges::find(values, value) != values.end();
}

std::string numbers(const std::vector<int>& values) {
  return joined(values, [](int each) { return std::to_string(each); });
}

// Fields that all configurations have: the scenario's, the flags' in place of them, else defaults.
json base_of(const TuneOptions& options, const Framework& framework, std::string& file,
             const Changes& changes) {
  json base = json::object();
  if (!options.scenario.empty()) {
    file = scenario_path(options.scenario);
    base = read_json_file(file);
    if (!base.is_object()) throw InputError(file, "", "is no object", "write {…}");
    refuse_other_kind(base, file, "a scenario");
  }
  changes.apply_to_scenario(base);
  for (const char* key :
       {"configurations", "costs", "run", "pairs", "microbatches", "layer_costs", "microbatch_costs"})
    if (base.contains(key))
      throw InputError(file, key, "is not for stp tune, which makes configurations of a model on a cluster",
                       "remove it");
  for (const char* key : {"name", "title", "comment", "order", "timeline", "compare"}) base.erase(key);
  const auto take = [&](const char* key, const char* flag, bool given, const json& value,
                        const char* remedy) {
    const Field field{base, key, flag};
    if (given) {
      field.refuse_both(file);
      base[key] = value;
    }
    if (!field.given()) throw InputError(file, flag, "is missing", remedy);
  };
  const auto take_file = [&](const char* key, const char* flag, const std::string& word) {
    take(key, flag, !word.empty(), is_path(word) ? path_of_user(word) : word,
         "name one of the suite's, or a file");
  };
  take_file("model", "--model", options.model);
  take_file("cluster", "--cluster", options.cluster);
  take("seq", "--seq", options.seq > 0, options.seq, "write the tokens of a sample");
  take("global_batch", "--global-batch", options.global_batch > 0, options.global_batch,
       "write the samples of a step");
  json defaults = {{"zero", 1}, {"implementation", "megatron-te"}};
  defaults.update(json::parse(framework.fields));
  defaults.update(base);
  return defaults;
}

}  // namespace

bool Saver::covers(const Saver& other) const {
  const Recompute &a = recompute, &b = other.recompute;
  if (other.offload > offload) return false;
  if (a.layer && a.first == 0) return true;
  if (a.layer || b.layer)
    return b == Recompute{} || (a.layer && b.layer && 0 < b.first && b.first <= a.first);
  return a.core >= b.core && a.qkv >= b.qkv && a.mlp >= b.mlp && a.norm >= b.norm;
}

void Refused::add(const InputError& error, size_t count) {
  const std::string reason = without_numbers(error.what());
  by_reason[reason] += count;
  messages.emplace(reason, error.what());
}

void Refused::add(const Refused& other) {
  for (const auto& [reason, count] : other.by_reason) by_reason[reason] += count;
  messages.insert(other.messages.begin(), other.messages.end());
}

InputError Refused::all() const {
  const auto most = std::ranges::max_element(by_reason, {}, [](const auto& each) { return each.second; });
  return {"", "", "all configurations are refused, most of them: " + messages.at(most->first), ""};
}

TuneSpace::TuneSpace(const TuneOptions& options)
    : gpus(options.gpus), framework(find_framework(options.runs_on)), changes_(options.set) {
  base_ = base_of(options, framework, file, changes_);
  global_batch_ = JsonInput(base_, file).integer("global_batch", 1);
  base_.erase("global_batch");
  const bool named_savers = !options.recompute.empty() || !options.offload.empty() ||
                            base_.contains("recompute") || base_.contains("offload");
  read_axes(options);
  base_["parallel"]["pp"] = base_["microbatches"] = 1;  // until a plan has its own
  base_["schedules"] = {"1f1b"};
  first_ = read(base_);
  if (!framework.vision && first_->hardware->model.has_vision())
    throw InputError("", "--runs-on",
                     std::string(framework.name) + " trains language models, and " +
                         first_->hardware->model.name + " has a vision encoder",
                     "leave it out");
  if (framework.vocab_multiple > 0 && first_->hardware->model.vocab_multiple == 0) {
    std::vector<std::string> set = options.set;
    set.push_back("model.make_vocab_size_divisible_by=" + std::to_string(framework.vocab_multiple));
    changes_ = Changes(set);
    first_.reset();  // which has the model as it was
    first_ = read(base_);
  }
  layers_ = first_->hardware->model.layers;
  read_savers(named_savers);
  read_plans();
}

void TuneSpace::read_ranks(const TuneOptions& options) {
  json& parallel = base_.emplace("parallel", json::object()).first.value();
  if (!parallel.is_object()) throw InputError(file, "parallel", "is no object", "write {…}");
  for (size_t i = 0; i < ranks_.size(); ++i) {
    const std::string name = kAxes[i].name, flag = "--" + name;
    ranks_[i] = axis(options.ranks[i], {parallel, "parallel." + name, flag}, file);
    check_numbers(ranks_[i], flag, kAxes[i].most);
    limited = limited || !ranks_[i].empty();
    if (!ranks_[i].empty() && std::ranges::all_of(ranks_[i], [&](int each) { return gpus % each != 0; }))
      throw InputError("", flag,
                       numbers(ranks_[i]) + " does not divide the " + std::to_string(gpus) + " of --gpus",
                       "use a divisor");
  }
  const auto cp = std::ranges::find(kAxes, &Strategy::cp, &Axis::ranks) - std::begin(kAxes);
  if (const auto method = parallel.find("cp_method");
      method != parallel.end() && ranks_[cp] != std::vector{1}) {
    cp_method_ = *method;
    check_words({method->is_string() ? method->get<std::string>() : json_text(*method)}, "parallel.cp_method",
                words_of(kCpMethods));
    parallel.erase(method);
  }
}

void TuneSpace::read_axes(const TuneOptions& options) {
  read_ranks(options);
  json& base = base_;
  chunks_ = axis(options.chunks, {base, "chunks", "--chunks"}, file);
  microbatch_sizes_ = axis(options.microbatch_size, {base, "microbatch_size", "--microbatch-size"}, file);
  check_numbers(chunks_, "--chunks", kMaxChunks);
  check_numbers(microbatch_sizes_, "--microbatch-size", 1 << 20);
  const auto words = [&](const std::vector<std::string>& given, const char* key, const char* flag,
                         const std::vector<std::string>& possible, const std::vector<std::string>& known) {
    const std::vector<std::string> values = axis(given, {base, key, flag}, file);
    check_words(values, flag, known);
    limited = limited || !values.empty();
    if (*framework.name != '\0')
      check_words(values, flag, possible, " in what " + std::string(framework.name) + " runs");
    return values.empty() ? possible : values;
  };
  const Framework& everything = find_framework("");
  schedules_ = words(options.schedules, "schedules", "--schedule", framework.schedules, everything.schedules);
  if (schedules_ == framework.schedules)
    std::erase_if(schedules_, [](const std::string& name) { return find_generator(name).slow; });
  overlaps_ =
      words(options.tp_overlap, "tp_overlap", "--tp-overlap", framework.tp_overlap, words_of(kTpOverlaps));
  splits_ = words(options.layers, "layers_per_chunk", "--layers", {"balanced", "even"}, {"balanced", "even"});
  std::vector<std::string> recomputes = everything.recompute;
  recomputes.push_back(word_of(kLayernorm));  // only if it is named
  recomputes_ = words(options.recompute, "recompute", "--recompute", framework.recompute, recomputes);
  if (const auto found = base.find("sequence_parallel"); found != base.end() && found->is_boolean())
    *found = found->get<bool>() ? "on" : "off";
  sequence_ = words(options.sequence_parallel, "sequence_parallel", "--sequence-parallel", {"off", "on"},
                    {"off", "on"});
  json& offload = base.emplace("offload", json::object()).first.value();
  if (!offload.is_object()) throw InputError(file, "offload", "is no object", R"(write {"ratio": …})");
  offloads_ = axis(options.offload, {offload, "offload.ratio", "--offload"}, file);
  for (const auto& [key, value] : offload.items())
    throw InputError(file, "offload." + key, "is not searched", "remove it");
  base.erase("offload");
  for (const double ratio : offloads_)
    if (!(ratio >= 0 && ratio <= 1) || (ratio > 0 && !framework.offload))
      throw InputError(
          "", "--offload", shown("%g", ratio) + " is not possible",
          framework.offload ? "write ratios from 0 to 1" : "leave it out: this framework does not offload");
  limited = limited || !chunks_.empty() || !microbatch_sizes_.empty() || !offloads_.empty();
  if (offloads_.empty())
    offloads_ = framework.offload ? std::vector<double>{0, 0.5, 1} : std::vector<double>{0};
}

Experiment TuneSpace::read(const json& content) const {
  JsonInput input(content, file);
  const std::vector<Experiment> read =
      read_experiments(input, "", "", changes_, first_ ? &*first_->hardware : nullptr);
  for (const char* key : {"models", "clusters"}) input.ignore(key);
  input.done();
  return read.front();
}

// What the reader refuses here it refuses in all plans.
void TuneSpace::read_savers(bool named) {
  for (const std::string& name : recomputes_)
    for (const double offload : offloads_) {
      json one = base_;
      one["recompute"] = name;
      if (offload > 0) one["offload"] = {{"ratio", offload}};
      try {
        savers.push_back({read(one).strategy.recompute, offload});
      } catch (const InputError&) {
        if (named) throw;
      }
    }
  // Less before more.
  std::ranges::stable_sort(savers, {}, [](const Saver& saver) {
    const Recompute& one = saver.recompute;
    return std::pair{one.whole_layers(INT_MAX), one.core + one.qkv + one.mlp + one.activation + one.norm};
  });
}

std::vector<Variant> TuneSpace::variants(int pp) const {
  std::vector<Variant> all;
  for (const std::string& name : schedules_) {
    const Generator& generator = find_generator(name);
    std::vector<int> counts = chunks_;
    if (counts.empty() && pp == 1 && *framework.single_chunk_release != '\0')
      counts = {1};  // Megatron-LM has no more then
    if (counts.empty() && generator.any_chunks)
      for (int chunks = 2; chunks <= std::min(kMostChunks, layers_ / pp); ++chunks)
        if (layers_ % (pp * chunks) == 0 || chunks == 2) counts.push_back(chunks);
    if (counts.empty()) counts = {generator.chunks};
    for (const int chunks : counts) {
      if (!runs_chunks(framework, name, chunks, pp)) continue;
      for (const std::string& split : splits_)
        if (split == "even" || chunks <= 2)  // the balancer takes no more
          all.push_back({{name, "", 0}, chunks, split == "even" ? LayerSplit::even : LayerSplit::balanced});
    }
  }
  const auto takes_any = [](const Variant& variant) {
    return find_generator(variant.choice.name).any_chunks;
  };
  if (pp == 1 && !std::ranges::all_of(all, takes_any)) std::erase_if(all, takes_any);  // same with one chunk
  return all;
}

std::vector<std::string> TuneSpace::ends(const Experiment& experiment) const {
  std::vector<std::string> ends;
  const auto add = [&](const std::string& what, int most, const std::string& more) {
    ends.push_back("the largest " + what + " that was tried (" + std::to_string(most) + "): try " + more);
  };
  if (microbatch_sizes_.empty() && experiment.microbatch_size == kMostMicrobatch &&
      experiment.microbatches % 2 == 0)
    add("microbatch size", kMostMicrobatch,
        "--microbatch-size " + std::to_string(2 * kMostMicrobatch) + "," +
            std::to_string(4 * kMostMicrobatch));
  const int layers = layers_ / experiment.strategy.pp;  // of a rank
  if (chunks_.empty() && experiment.chunks == kMostChunks && layers > kMostChunks)
    add("number of chunks", kMostChunks, "--chunks " + std::to_string(layers));
  return ends;
}

Experiment TuneSpace::experiment(const Experiment& plan, const Variant& variant, const Saver& saver) const {
  Experiment one = plan;
  one.schedules = {variant.choice};
  one.schedules_as_read = std::make_shared<const json>(json::array({variant.choice.name}));
  one.chunks = variant.chunks;
  one.split = variant.split;
  one.strategy.recompute = saver.recompute;
  one.strategy.offload = saver.offload;
  if (variant.chunks == 1 && one.release == Release::megatron && *framework.single_chunk_release != '\0')
    one.release = Release::megatron_batched;
  return one;
}

void TuneSpace::read_plan(const Strategy& strategy, int microbatch_size, bool sequence,
                          const std::string& overlap) {
  json one = base_;
  json& parallel = one["parallel"];
  for (const Axis& axis : kAxes) parallel[axis.name] = strategy.*axis.ranks;
  if (strategy.cp > 1 && !cp_method_.is_null()) parallel["cp_method"] = cp_method_;
  one.erase("microbatches");
  one["global_batch"] = global_batch_;
  one["microbatch_size"] = microbatch_size;
  one["sequence_parallel"] = sequence;
  one["tp_overlap"] = overlap;
  const size_t count = variants(strategy.pp).size() * savers.size();
  configurations += count;
  try {
    plans.push_back(read(one));
  } catch (const InputError& error) {
    refused.add(error, count);
  }
  if (plans.size() > kMostPlans)
    throw InputError(file, "--gpus", "have over " + std::to_string(kMostPlans) + " splits with these options",
                     "fix an axis, such as --tp 8");
}

InputError TuneSpace::no_split() const {
  std::string with;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    const std::string text = ranks_[i].empty() ? shown(kAxes[i].limited, limit(i)) : numbers(ranks_[i]);
    if (!text.empty()) with += (with.empty() ? "" : ", ") + std::string(kAxes[i].name) + " " + text;
  }
  return {file, "--gpus", std::to_string(gpus) + " cannot be divided as tp · cp · pp · dp with " + with,
          "use another number, or leave an axis free"};
}

InputError TuneSpace::no_variant() const {
  const bool possible = chunks_.empty() || std::ranges::any_of(schedules_, [&](const std::string& name) {
                          return std::ranges::any_of(chunks_, [&](int chunks) {
                            return runs_chunks(framework, name, chunks, 2);  // more on one
                          });
                        });
  if (possible)
    return {file, "--layers", "are balanced only with up to 2 chunks a rank", "write even, or fewer chunks"};
  return {file, "--chunks", "cannot be " + numbers(chunks_) + " with " + joined(schedules_),
          "leave them out, or name another schedule"};
}

// Those with which the batch divides.
std::vector<int> TuneSpace::microbatch_sizes(int dp) const {
  std::vector<int> sizes = microbatch_sizes_;
  if (sizes.empty())
    for (int size = 1; size <= kMostMicrobatch; size *= 2) sizes.push_back(size);
  std::erase_if(sizes, [&](int size) { return global_batch_ % (int64_t{size} * dp) != 0; });
  return sizes;
}

// What is left out here some other value of the axis stands for; what none stands for the reader refuses.
void TuneSpace::read_split(const Strategy& strategy, const std::vector<int>& sizes) {
  const bool plain = has(overlaps_, "none"),
             has_even = std::ranges::any_of(sizes, [](int size) { return size % 2 == 0; });
  for (const int size : sizes)
    for (const std::string& sequence : sequence_)
      for (const std::string& overlap : overlaps_) {
        // One rank has no collectives to scatter or hide; megatron's and flux's need scattered ones.
        const bool on = sequence == "on", scattered = overlap == "megatron" || overlap == "flux";
        if (strategy.tp == 1 ? (on && has(sequence_, "off")) || (overlap != "none" && plain)
                             : scattered && !on && (plain || has(sequence_, "on")))
          continue;
        if (overlap == "domino" && size % 2 != 0 && (plain || has_even)) continue;
        read_plan(strategy, size, on, strategy.tp > 1 ? overlap : "none");
      }
}

int TuneSpace::limit(size_t axis) const {
  const Experiment::Hardware& hardware = *first_->hardware;
  return kAxes[axis].limit(hardware.model, hardware.seq, hardware.profile.gpus_per_node);
}

void TuneSpace::divide(Strategy strategy, size_t axis, std::vector<Strategy>& all) const {
  const int left = gpus / strategy.world_size();
  if (axis == ranks_.size()) {
    if (left == 1) all.push_back(strategy);
    return;
  }
  for (const int each : divisors(left)) {
    if (ranks_[axis].empty() ? each > limit(axis) : !has(ranks_[axis], each)) continue;
    strategy.*kAxes[axis].ranks = each;
    divide(strategy, axis + 1, all);
  }
}

void TuneSpace::read_plans() {
  std::vector<Strategy> all;
  divide({}, 0, all);
  if (all.empty()) throw no_split();
  int64_t least = INT64_MAX;  // samples that dp and a microbatch size divide
  bool batch = false;
  for (const Strategy& strategy : all) {
    least = std::min(least, int64_t{microbatch_sizes_.empty() ? 1 : microbatch_sizes_.front()} * strategy.dp);
    const std::vector<int> sizes = microbatch_sizes(strategy.dp);
    batch = batch || !sizes.empty();
    read_split(strategy, sizes);
  }
  if (!batch)
    throw InputError(
        file, "--global-batch",
        std::to_string(global_batch_) + " samples divide by no dp · microbatch size of these GPUs",
        "use a multiple of " + std::to_string(least) + ", or a larger tp, cp or pp");
  if (configurations == 0) throw no_variant();
  if (plans.empty()) throw refused.all();
}

}  // namespace stp
