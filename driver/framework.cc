#include "framework.h"

#include <algorithm>

#include "baselines/registry.h"
#include "choices.h"

namespace stp {
namespace {

// All schedules; if `framework` is not null, those built into it; `as_csv`: those that a CSV file can hold.
std::vector<std::string> names_of_schedules(const char* framework = nullptr, bool as_csv = false) {
  std::vector<std::string> names;
  for (const Generator* generator : generators()) {
    if (framework != nullptr && std::ranges::none_of(generator->built_into, [&](const char* each) {
          return each != nullptr && std::string(each) == framework;
        }))
      continue;
    if (!as_csv || is_single_and_whole(make_schedule(*generator, {2, 4})))
      names.emplace_back(generator->name);
  }
  return names;
}

}  // namespace

// Megatron-LM: its arguments. PyTorch: its pipelining's runtime takes any order as a CSV file.
const std::vector<Framework>& frameworks() {
  static const std::vector<std::string> everything = words_of(kRecomputes),
                                        of_torch{"none", "selective", "full"};
  constexpr const char* torch = R"({"implementation": "suite", "release": "block"})";
  static const std::vector<Framework> all{
      {"", names_of_schedules(), everything, {"none", "megatron", "domino"}, true, "{}", "", 0, true},
      {"megatron",
       names_of_schedules("megatron"),
       {"none", "selective", "mlp", "full", "block-1"},
       {"none", "megatron"},
       false,
       R"({"implementation": "megatron-te", "backward": "megatron", "release": "megatron"})",
       "megatron-batched",
       128,
       false},
      {"pytorch", names_of_schedules("pytorch"), of_torch, {"none"}, false, torch, "", 0, true},
      {"pytorch-csv", names_of_schedules(nullptr, true), of_torch, {"none"}, false, torch, "", 0, true}};
  return all;
}

bool runs_chunks(const Framework& framework, const std::string& schedule, int chunks, int pp) {
  const Generator& generator = find_generator(schedule);
  if (!generator.any_chunks) return chunks == generator.chunks;
  // Megatron-LM runs one chunk as plain 1F1B, which has another warm-up.
  return chunks > 1 || pp == 1 || *framework.single_chunk_release == '\0';
}

bool runs(const Framework& framework, const Experiment& one) {
  const auto among = [](const std::vector<std::string>& words, const std::string& word) {
    return std::ranges::find(words, word) != words.end();
  };
  const Strategy& strategy = one.strategy;
  const std::string schedule = name_of(one.schedules.front()),
                    recompute = strategy.recompute.first > 0 ? "block-1" : word_of(strategy.recompute);
  return (framework.vision || !one.hardware->model.has_vision()) && among(framework.schedules, schedule) &&
         runs_chunks(framework, schedule, one.chunks, strategy.pp) && among(framework.recompute, recompute) &&
         among(framework.tp_overlap, word_of(strategy.tp_overlap, kTpOverlaps)) &&
         (framework.offload || strategy.offload == 0);
}

const Framework& find_framework(const std::string& name) {
  std::vector<std::string> names;
  for (const Framework& each : frameworks()) {
    if (name == each.name) return each;
    if (*each.name != '\0') names.emplace_back(each.name);
  }
  throw InputError("", "--runs-on", "there is no framework \"" + name + "\"",
                   did_you_mean(name, names) + "there are " + joined(names));
}

}  // namespace stp
