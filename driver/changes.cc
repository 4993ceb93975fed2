#include "changes.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "stp/base/error.h"

namespace stp {
namespace {

using nlohmann::json;
using Path = std::vector<std::string>;

bool of_file(const Path& path) { return path.size() > 1 && (path[0] == "cluster" || path[0] == "model"); }

json value_of(const std::string& text) {
  json value = json::parse(text, nullptr, false);
  return value.is_discarded() ? json(text) : value;
}

// Makes missing objects on the path; the reader refuses those that it does not know.
void set(json& object, Path::const_iterator begin, Path::const_iterator end, const json& value,
         const std::string& key) {
  if (!object.is_object())
    throw InputError("", "--set", key + ": " + *(begin - 1) + " has no fields", "name a field of an object");
  json& field = object[*begin];
  if (begin + 1 == end)
    field = value;
  else
    set(field.is_null() ? field = json::object() : field, begin + 1, end, value, key);
}

}  // namespace

Changes::Changes(const std::vector<std::string>& words) {
  for (const std::string& word : words) {
    const size_t equals = word.find('=');
    Change change{word.substr(0, equals), equals == std::string::npos ? "" : word.substr(equals + 1), {}};
    std::istringstream parts(change.key);
    for (std::string part; std::getline(parts, part, '.');) change.path.push_back(part);
    const bool empty_part = std::find(change.path.begin(), change.path.end(), "") != change.path.end();
    if (change.value.empty() || change.path.empty() || empty_part || change.key.back() == '.')
      throw InputError("", "--set", "\"" + word + "\" is not KEY=VALUE",
                       "write, for example, seq=4096, parallel.tp=8 or cluster.peak_tflops=400");
    changes_.push_back(std::move(change));
  }
}

void Changes::apply_to_scenario(json& scenario) const {
  for (const auto& [key, value, path] : changes_) {
    if (of_file(path)) continue;
    set(scenario, path.begin(), path.end(), value_of(value), key);
    const auto configurations = scenario.find("configurations");
    if (configurations == scenario.end() || !configurations->is_array()) continue;
    for (json& configuration : *configurations)
      if (configuration.is_object() && configuration.contains(path[0]))
        set(configuration, path.begin(), path.end(), value_of(value), key);
  }
}

void Changes::apply_to_file(const std::string& part, json& content) const {
  for (const auto& [key, value, path] : changes_) {
    if (!of_file(path) || path[0] != part) continue;
    const json was = content.is_object() && content.contains(path[1]) ? content[path[1]] : json();
    const json given = value_of(value);
    // Numbers of a cluster have sources, also those that its file leaves out.
    const bool sourced = path.size() == 2 && ((was.is_object() && was.contains("value")) ||
                                              (part == "cluster" && was.is_null() && given.is_number()));
    const json now = sourced ? json{{"value", given}, {"source", "--set"}} : given;
    set(content, path.begin() + 1, path.end(), now, key);
  }
}

std::string Changes::title(const std::string& given, const std::string& name) const {
  std::string all;
  for (const Change& change : changes_) all += (all.empty() ? " [" : ", ") + change.key + "=" + change.value;
  return all.empty() ? given : name + all + "]";
}

}  // namespace stp
