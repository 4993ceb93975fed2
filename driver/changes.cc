#include "changes.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "stp/base/data.h"
#include "stp/base/json_input.h"

namespace stp {
namespace {

using nlohmann::json;
using Path = std::vector<std::string>;

bool of_file(const Path& path) { return path.size() > 1 && (path[0] == "cluster" || path[0] == "model"); }

// Paths of the command line are not the scenario's: makes those in `value`, of the field `key`, absolute.
void make_absolute(const std::string& key, json& value) {
  if (value.is_array()) {
    for (json& each : value) make_absolute(key, each);
  } else if (value.is_object()) {
    for (const auto& [name, field] : value.items()) make_absolute(name, field);
  } else if (value.is_string()) {
    const std::string word = value.get<std::string>();
    const bool data = (key == "model" || key == "cluster") && is_path(word);
    if (data || key == "file" || key == "text") value = path_of_user(word);
  }
}

// Fields of lists, which a shell's user writes as 32,64.
constexpr const char* kLists[] = {"schedules",        "microbatches", "global_batch",
                                  "layers_per_chunk", "layer_costs",  "microbatch_costs"};

void refuse_commas(const std::string& text, const std::string& key) {
  if (text.find(',') == std::string::npos || std::ranges::find(kLists, key) == std::end(kLists)) return;
  json list = json::array();
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) {
    const json number = json::parse(part, nullptr, false);
    list.push_back(number.is_number() ? number : json(part));
  }
  throw InputError("", "--set", key + "=" + text + " is not a list",
                   "write --set '" + key + "=" + json_text(list) + "'");
}

json value_of(const std::string& text, const std::string& key) {
  const auto refuse_depth = [&](int depth, json::parse_event_t, json&) {
    if (depth > kDeepestJson)
      throw InputError("", "--set", key + " is nested more than " + std::to_string(kDeepestJson) + " deep",
                       "flatten it");
    return true;
  };
  json value = json::parse(text, refuse_depth, false);
  if (value.is_discarded()) {
    refuse_commas(text, key);
    value = text;
  }
  make_absolute(key, value);
  return value;
}

// Makes missing objects on the path; the reader refuses those that it does not know. Null removes the field.
void set(json& object, Path::const_iterator begin, Path::const_iterator end, const json& value,
         const std::string& key) {
  if (!object.is_object())
    throw InputError("", "--set", key + ": " + *(begin - 1) + " has no fields", "name a field of an object");
  if (value.is_null() && !object.contains(*begin)) return;
  json& field = object[*begin];
  if (begin + 1 < end)
    set(field.is_null() ? field = json::object() : field, begin + 1, end, value, key);
  else if (value.is_null())
    object.erase(*begin);
  else
    field = value;
}

void check_removed(const json& value, const json& now, const json& was, const std::string& key) {
  if (value.is_null() && now == was)
    throw InputError("", "--set", key + " is not given: null has nothing to remove", "leave it out");
}

// Changes the field in each configuration that has it, itself or in its `vary`.
void set_where_given(json& part, const Path& path, const json& value, const std::string& key) {
  if (part.is_array()) {
    for (json& each : part) set_where_given(each, path, value, key);
  } else if (part.is_object()) {
    if (part.contains(path[0])) set(part, path.begin(), path.end(), value, key);
    if (part.contains("vary")) set_where_given(part["vary"], path, value, key);
  }
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
    if (change.path.size() > kDeepestJson)
      throw InputError("", "--set",
                       change.key.substr(0, 40) + "… has over " + std::to_string(kDeepestJson) + " parts",
                       "name a field that there is");
    if (std::ranges::find(changes_, change.key, &Change::key) != changes_.end())
      throw InputError("", "--set", change.key + " is given twice", "keep one of them");
    changes_.push_back(std::move(change));
  }
}

void Changes::apply_to_scenario(json& scenario) const {
  for (const auto& [key, value, path] : changes_) {
    if (of_file(path)) continue;
    const json given = value_of(value, path.back()), was = scenario;
    set(scenario, path.begin(), path.end(), given, key);
    if (scenario.contains("configurations")) set_where_given(scenario["configurations"], path, given, key);
    check_removed(given, scenario, was, key);
  }
}

void Changes::apply_to_file(const std::string& part, json& content) const {
  for (const auto& [key, value, path] : changes_) {
    if (!of_file(path) || path[0] != part) continue;
    const json all = content,
               was = content.is_object() && content.contains(path[1]) ? content[path[1]] : json();
    const json given = value_of(value, "");
    // Numbers of a cluster have sources, also those that its file leaves out.
    const bool sourced = path.size() == 2 && !given.is_null() &&
                         ((was.is_object() && was.contains("value")) ||
                          (part == "cluster" && was.is_null() && given.is_number()));
    const json now = sourced ? json{{"value", given}, {"source", "--set"}} : given;
    set(content, path.begin() + 1, path.end(), now, key);
    check_removed(given, content, all, key);
  }
}

void Changes::refuse_unread(const std::string& part, const std::string& file) const {
  for (const Change& change : changes_)
    if (of_file(change.path) && change.path[0] == part)
      throw InputError("", "--set", change.key + ": " + file + " reads no " + part,
                       "leave it, or the scenario, out");
}

InputError Changes::blamed(const InputError& error, const std::vector<std::string>& scenarios) const {
  std::string field = error.field();
  if (field.starts_with("configurations["))
    field.erase(0, field.find('.') + 1);  // or it is the whole configuration
  const std::string& file = error.file();
  if (!file.empty() && file != "-" && !file.ends_with(".json")) return error;  // of a checkpoint, say
  const bool of_scenario = std::ranges::any_of(scenarios, [&](const std::string& word) {
    return error.file() == word || error.file() == data_path("scenarios/" + word + ".json");
  });
  const bool unknown = dynamic_cast<const UnknownField*>(&error) != nullptr;
  for (const Change& change : changes_) {
    if (!scenarios.empty() && of_scenario == of_file(change.path)) continue;
    const std::string& key = change.key;
    const std::string part = of_file(change.path) ? change.path[0] + "." : "";  // the file's fields lack it
    if (((part + field) + ".").starts_with(key + ".") || (part + field).starts_with(key + "[")) {
      InputError moved = error.moved("--set", part + field);
      if (!unknown || !part.empty()) return moved;
      return moved.with_remedy("fields of the cluster's and the model's file are cluster." + key +
                               " and model." + key);
    }
    if (unknown && key.starts_with(part + field + ".")) return error.moved("--set", key);  // set() made it
  }
  return error;
}

bool Changes::sets(const std::string& field) const {
  return std::ranges::any_of(changes_, [&](const Change& change) { return change.path.front() == field; });
}

std::string Changes::title(const std::string& given, const std::string& name) const {
  std::string all;
  for (const Change& change : changes_) all += (all.empty() ? " [" : ", ") + change.key + "=" + change.value;
  return all.empty() ? given : name + all + "]";
}

}  // namespace stp
