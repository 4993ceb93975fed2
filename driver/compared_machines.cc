#include "compared_machines.h"

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "changes.h"
#include "scenario.h"
#include "stp/base/data.h"

namespace stp {
namespace {

using nlohmann::json;

constexpr const char* kProfiles = "profiles";

// Names the user's file rather than the suite's.
[[noreturn]] void refuse_same_name(const std::string& name, const std::string& first,
                                   const std::string& second) {
  const bool own = second == data_path(std::string(kProfiles) + "/" + name + ".json");
  throw InputError(own ? first : second, "name",
                   "\"" + name + "\" is the name of two profiles, also of " + (own ? second : first),
                   "give each its own \"name\"");
}

// Makes `name` the source of all values that --set has not given.
void carry_over(json& value, const std::string& name) {
  if (value.is_object() && value.contains("source") && value["source"] != "--set")
    value["source"] = "carried over from " + name;
  if (value.is_structured())
    for (json& part : value) carry_over(part, name);
}

void add(std::vector<ComparedMachine>& machines, json content, const std::string& file) {
  HardwareProfile profile = read_profile(content, file);
  for (const ComparedMachine& other : machines)
    if (other.profile.name == profile.name) refuse_same_name(profile.name, other.file, file);
  say_overridden(content, file);
  machines.push_back({std::move(profile), std::make_shared<const json>(std::move(content)), file});
}

// A value that is uncertain and the same on several machines is one unknown: its ends are those that all
// allow.
void share_ends(std::vector<ComparedMachine>& machines) {
  const std::vector<ComparedMachine> given = machines;
  for (ComparedMachine& machine : machines)
    for (UncertainValue& ends : machine.profile.uncertain)
      for (const ComparedMachine& other : given) {
        const auto same = std::ranges::find(other.profile.uncertain, ends.name, &UncertainValue::name);
        if (same == other.profile.uncertain.end() ||
            other.profile_json->at(ends.name).at("value") != machine.profile_json->at(ends.name).at("value"))
          continue;
        ends.from = std::max(ends.from, same->from);
        ends.to = std::min(ends.to, same->to);
      }
}

}  // namespace

std::vector<ComparedMachine> read_machines(const std::vector<std::string>& named, const std::string& leading,
                                           const std::vector<std::string>& changes) {
  std::vector<std::string> words = named;
  if (words.empty() && !changes.empty())
    throw InputError("", "--set", "changes a copy of a profile, and --profiles names none",
                     "name it, such as --profiles h100");
  if (words.empty()) {
    words = data_names(kProfiles);
    const auto first = std::ranges::find(words, leading);
    if (first != words.end()) std::rotate(words.begin(), first, first + 1);
  }
  std::vector<ComparedMachine> machines;
  for (const std::string& word : words) {
    const std::string file = find_data_file(word, kProfiles, "", "--profiles");
    add(machines, read_json_file(file), file);
  }
  if (!changes.empty()) {
    json copy = *machines.back().profile_json;
    copy["name"] = machines.back().profile.name + "-changed";
    copy["accelerator"] = machines.back().profile.accelerator + " with other values";
    Changes(changes).apply_to_file("cluster", copy);
    carry_over(copy, machines.back().profile.name);
    add(machines, std::move(copy), machines.back().file);
  }
  if (machines.size() < 2)
    throw InputError("", "--profiles", "need at least two machines",
                     "name two or more, or change a copy of one: --set cluster.peak_tflops=400");
  share_ends(machines);
  return machines;
}

json level_fixed_memory(std::vector<ComparedMachine>& machines) {
  json without = json::array();
  for (const ComparedMachine& machine : machines)
    if (!machine.profile_json->contains("fixed_memory_gb")) without.push_back(machine.profile.name);
  if (without.empty() || without.size() == machines.size()) return json::array();
  for (ComparedMachine& machine : machines)
    machine.profile.fixed_memory_bytes = machine.profile.least_fixed_memory_bytes =
        machine.profile.most_fixed_memory_bytes = 0;
  return without;
}

bool is_varied(const UncertainValue& uncertain, const ComparedMachine& machine,
               const std::vector<ComparedMachine>& machines) {
  if (std::ranges::count(machine.profile.fitted, uncertain.name) == 0) return true;
  const json& own = machine.profile_json->at(uncertain.name).at("value");
  return std::ranges::any_of(machines, [&](const ComparedMachine& other) {
    return std::ranges::count(other.profile.assumed, uncertain.name) > 0 &&
           other.profile_json->at(uncertain.name).at("value") == own;
  });
}

}  // namespace stp
