#include "option_columns.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "stp/base/json_input.h"

namespace stp {
namespace {

using nlohmann::json;

constexpr size_t kLongestCell = 16, kLongestNote = 300;  // bytes

std::string text_of(const json& value) {
  if (value.is_boolean()) return value.get<bool>() ? "yes" : "no";
  return value.is_string() ? value.get<std::string>() : json_text(value);
}

// JSON that can be wrapped, without the end of a long one.
std::string shortened(const std::string& value) {
  std::string text;
  for (const char c : valid_utf8(value.substr(0, kLongestNote))) text += c == ',' ? ", " : std::string(1, c);
  return text + (value.size() > kLongestNote ? "…" : "");
}

}  // namespace

std::vector<std::string> axis_heads() {
  std::vector<std::string> heads;
  for (const Axis& axis : kAxes) heads.emplace_back(axis.name);
  return heads;
}

std::vector<std::string> axis_cells(const Strategy& strategy) {
  std::vector<std::string> cells;
  for (const Axis& axis : kAxes) cells.push_back(std::to_string(strategy.*axis.ranks));
  return cells;
}

void OptionColumns::add(const Experiment& experiment, const ScheduleChoice& choice) {
  json configuration = to_json(experiment);
  configuration.erase("schedules");
  for (const GeneratorOption& option : kGeneratorOptions)
    if (const int value = choice.options.*option.value; value > 0) configuration[option.name] = value;
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

Table OptionColumns::table(std::vector<std::string> head, std::vector<std::vector<std::string>> rows,
                           size_t at) const {
  std::map<std::string, std::vector<std::string>> columns;  // "–" where a row leaves a field at its default
  for (size_t row = 0; row < options_.size(); ++row)
    for (const auto& [field, value] : options_[row])
      columns.try_emplace(field, options_.size(), "–").first->second[row] = value;
  std::vector<std::string> notes;
  const auto insert = [&](const std::string& field, size_t at_column) {
    const auto place = static_cast<std::ptrdiff_t>(at_column);
    std::ranges::replace(*head.insert(head.begin() + place, field), '_', ' ');
    std::map<std::string, std::string> numbers;
    for (size_t i = 0; i < rows.size(); ++i) {
      std::string value = columns.at(field)[i];
      if (value.size() > kLongestCell && field != "name") {
        const auto [number, added] = numbers.try_emplace(value, "#" + std::to_string(numbers.size() + 1));
        if (added) notes.push_back(head[at_column] + " " + number->second + ": " + shortened(value));
        value = number->second;
      }
      rows[i].insert(rows[i].begin() + place, std::move(value));
    }
  };
  for (const auto& [field, column] : columns)
    if (std::set(column.begin(), column.end()).size() > 1 && field != "name" && !shown_.contains(field))
      insert(field, at++);
  if (columns.contains("name") && !shown_.contains("name")) insert("name", 0);
  Table table(std::move(head));
  for (auto& row : rows) table.add(std::move(row));
  for (const std::string& note : notes) table.note(note);
  return table;
}

}  // namespace stp
