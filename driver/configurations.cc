#include "configurations.h"

namespace stp {
namespace {

using nlohmann::json;

constexpr size_t kMostConfigurations = 100'000;

// `fields` with those of `choice`.
json with(json fields, const json& choice, const JsonInput& scenario, const std::string& place) {
  for (const auto& [key, value] : choice.items()) {
    if (fields.contains(key))
      throw scenario.error(place, "gives " + key + " twice",
                           "give it in the entry, or in one list of its vary");
    fields[key] = value;
  }
  return fields;
}

std::vector<json> product(const json& entry, const JsonInput& scenario, const std::string& place) {
  const json& lists = entry["vary"];
  const auto refuse_unless = [&](bool right) {
    if (!right)
      throw scenario.error(place + ".vary", "is not a list of lists of objects",
                           R"(write, for example, [[{"seq": 2048}, {"seq": 4096}]])");
  };
  refuse_unless(lists.is_array() && !lists.empty());
  std::vector<json> all{entry};
  all[0].erase("vary");
  for (const json& list : lists) {
    refuse_unless(list.is_array() && !list.empty());
    if (list.size() > kMostConfigurations / all.size())
      throw scenario.error(place + ".vary",
                           "stands for more than " + std::to_string(kMostConfigurations) + " configurations",
                           "use shorter lists");
    std::vector<json> more;
    for (const json& fields : all) {
      for (const json& choice : list) {
        refuse_unless(choice.is_object());
        more.push_back(with(fields, choice, scenario, place));
      }
    }
    all = std::move(more);
  }
  return all;
}

}  // namespace

std::vector<ListedConfiguration> configurations_of(JsonInput& scenario) {
  const json& entries = scenario.array("configurations");
  std::vector<ListedConfiguration> all;
  for (size_t i = 0; i < entries.size(); ++i) {
    const std::string place = "configurations[" + std::to_string(i) + "]";
    if (!entries[i].is_object() || !entries[i].contains("vary"))
      all.push_back({place, entries[i]});
    else
      for (json& fields : product(entries[i], scenario, place)) all.push_back({place, std::move(fields)});
  }
  return all;
}

}  // namespace stp
