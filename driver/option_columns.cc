#include "option_columns.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "stp/base/json_input.h"

namespace stp {
namespace {

using nlohmann::json;

constexpr size_t kLongestCell = 16;  // bytes of a cell

std::string text_of(const json& value) {
  if (value.is_boolean()) return value.get<bool>() ? "yes" : "no";
  return value.is_string() ? value.get<std::string>() : json_text(value);
}

// The option's value in a row; "–" if the row leaves it at its default.
std::string value_in(const std::map<std::string, std::string>& options, const std::string& field) {
  const auto found = options.find(field);
  return found == options.end() ? "–" : found->second;
}

std::string title_of(std::string field) {
  std::ranges::replace(field, '_', ' ');
  return field;
}

}  // namespace

void OptionColumns::add(const Experiment& experiment, const ScheduleChoice& choice) {
  json configuration = to_json(experiment);
  configuration.erase("schedules");
  if (choice.memory_limit > 0) configuration["memory_limit"] = choice.memory_limit;
  std::map<std::string, std::string>& options = options_.emplace_back();
  for (const auto& [field, value] : configuration.items()) {
    if (!value.is_object()) {
      options[field] = text_of(value);
      continue;
    }
    for (const auto& [part, of_part] : value.items())
      options[field == "parallel" || field == "run" ? part : field + " " + part] = text_of(of_part);
  }
}

void OptionColumns::insert(const std::string& field, std::vector<std::string>& head,
                           std::vector<std::vector<std::string>>& rows, size_t at) const {
  const auto place = static_cast<std::ptrdiff_t>(at);
  head.insert(head.begin() + place, title_of(field));
  std::map<std::string, size_t> numbers;
  for (size_t i = 0; i < rows.size(); ++i) {
    std::string value = value_in(options_[i], field);
    if (value.size() > kLongestCell && field != "name")
      value = "#" + std::to_string(numbers.try_emplace(value, numbers.size() + 1).first->second);
    rows[i].insert(rows[i].begin() + place, std::move(value));
  }
}

Table OptionColumns::table(std::vector<std::string> head, std::vector<std::vector<std::string>> rows,
                           size_t at) const {
  std::map<std::string, std::set<std::string>> values;
  for (const auto& options : options_)
    for (const auto& [field, value] : options) values[field];
  for (auto& [field, all] : values)
    for (const auto& options : options_) all.insert(value_in(options, field));
  const bool named = values.contains("name") && !shown_.contains("name");
  for (const auto& [field, all] : values)
    if (all.size() > 1 && field != "name" && !shown_.contains(field)) insert(field, head, rows, at++);
  if (named) insert("name", head, rows, 0);
  Table table(std::move(head));
  for (auto& row : rows) table.add(std::move(row));
  return table;
}

}  // namespace stp
