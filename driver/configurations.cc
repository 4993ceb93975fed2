#include "configurations.h"

namespace stp {
namespace {

using nlohmann::json;

constexpr size_t kMostVaried = 10'000;  // all that a file's `vary` make

// Adds the fields of `choice`, number `number` of its list.
void choose(ListedConfiguration& one, const json& choice, size_t number, const JsonInput& scenario) {
  for (const auto& [key, value] : choice.items()) {
    if (one.fields.contains(key))
      throw scenario.error(one.entry, "gives " + key + " twice",
                           "give it in the entry, or in one list of its vary");
    one.fields[key] = value;
  }
  one.choice += (one.choice.empty() ? "" : ", ") + std::to_string(number);
}

std::vector<ListedConfiguration> product(const ListedConfiguration& entry, const JsonInput& scenario) {
  const json& lists = entry.fields["vary"];
  const auto refuse_unless = [&](bool right) {
    if (!right)
      throw scenario.error(entry.entry + ".vary", "is not a list of lists of objects",
                           R"(write, for example, [[{"seq": 2048}, {"seq": 4096}]])");
  };
  refuse_unless(lists.is_array() && !lists.empty());
  std::vector<ListedConfiguration> all{entry};
  all[0].fields.erase("vary");
  for (const json& list : lists) {
    refuse_unless(list.is_array() && !list.empty());
    std::vector<ListedConfiguration> more;
    for (const ListedConfiguration& one : all) {
      for (size_t i = 0; i < list.size() && more.size() <= kMostVaried; ++i) {
        refuse_unless(list[i].is_object());
        choose(more.emplace_back(one), list[i], i + 1, scenario);
      }
    }
    all = std::move(more);
  }
  for (ListedConfiguration& one : all) one.choice = " (vary " + one.choice + ")";
  return all;
}

}  // namespace

std::vector<ListedConfiguration> configurations_of(JsonInput& scenario) {
  const json& entries = scenario.array("configurations");
  std::vector<ListedConfiguration> all;
  for (size_t i = 0, varied = 0; i < entries.size(); ++i) {
    const ListedConfiguration entry{"configurations[" + std::to_string(i) + "]", "", entries[i]};
    if (!entries[i].is_object() || !entries[i].contains("vary")) {
      all.push_back(entry);
      continue;
    }
    const std::vector<ListedConfiguration> made = product(entry, scenario);
    if ((varied += made.size()) > kMostVaried)
      throw scenario.error(entry.entry + ".vary",
                           "makes more than " + std::to_string(kMostVaried) + " configurations", "use fewer");
    all.insert(all.end(), made.begin(), made.end());
  }
  return all;
}

}  // namespace stp
