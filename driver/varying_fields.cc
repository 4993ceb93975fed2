#include "varying_fields.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "stp/base/json_input.h"

namespace stp {
namespace {

using nlohmann::json;

constexpr size_t kLongest = 16;  // characters of a cell

// A field that a scenario sets. `derived`: others determine it as a rule, so it matters only between rows
// that are equal in all others.
struct Field {
  const char *name, *title;
  bool derived = false;
};
constexpr Field kFields[] = {{"model", "model"},
                             {"cluster", "cluster"},
                             {"cluster_values", "cluster's values"},
                             {"unit_costs", "costs"},
                             {"seq", "seq"},
                             {"vision_tokens", "vision tokens"},
                             {"microbatch_size", "size"},
                             {"tp", "tp"},
                             {"pp", "pp"},
                             {"dp", "dp"},
                             {"cp", "cp"},
                             {"zero", "zero"},
                             {"sequence_parallel", "SP"},
                             {"tp_overlap", "TP overlap"},
                             {"recompute", "recompute"},
                             {"offload_ratio", "offload"},
                             {"gradients", "gradients"},
                             {"post_validation", "post-validation"},
                             {"release", "release"},
                             {"backward", "backward"},
                             {"braid", "braid"},
                             {"merge_backward", "merged"},
                             {"freed_at", "freed at"},
                             {"contention", "contention"},
                             {"microbatches", "m"},
                             {"layer_costs", "layer costs"},
                             {"microbatch_costs", "microbatch costs"},
                             {"layers_per_chunk", "layers", true}};

// A field's value as text. Absent fields have their defaults.
std::string text_of(const std::string& field, const json& row) {
  const json value = row.value(field, json());
  if (value.is_null()) return field == "post_validation" || field == "merge_backward" ? "no" : "–";
  if (value.is_boolean()) return value.get<bool>() ? "yes" : "no";
  const std::string text = value.is_string() ? value.get<std::string>() : json_text(value);
  return field == "cp" && row.contains("cp_method") ? text + " " + row.at("cp_method").get<std::string>()
                                                    : text;
}

}  // namespace

VaryingFields::VaryingFields(const json& rows, const std::set<std::string>& shown)
    : names_(!shown.contains("name") &&
             std::ranges::any_of(rows, [](const json& row) { return row.at("name").is_string(); })) {
  const auto key = [&](const json& row) {
    std::string text = text_of("schedule", row) + "\n" + text_of("name", row);
    for (const Field& field : kFields)
      if (!field.derived) text += "\n" + text_of(field.name, row);
    return text;
  };
  for (const auto& [name, title, derived] : kFields) {
    if (shown.contains(name)) continue;
    std::set<std::string> all;
    std::map<std::string, std::set<std::string>> of_equal;
    for (const json& row : rows) {
      const std::string text = text_of(name, row);
      all.insert(text);
      if (derived) of_equal[key(row)].insert(text);
      if (text.size() > kLongest) numbers_[name].try_emplace(text, numbers_[name].size() + 1);
    }
    const bool varies =
        derived ? std::ranges::any_of(of_equal, [](const auto& some) { return some.second.size() > 1; })
                : all.size() > 1 || (std::string(name) == "cp" && !all.contains("1"));
    if (varies) fields_.emplace_back(name);
  }
}

std::string VaryingFields::value(const std::string& field, const json& row) const {
  std::string text = text_of(field, row);
  if (text.size() <= kLongest) return text;
  return "#" + std::to_string(numbers_.at(field).at(text));
}

void VaryingFields::insert_titles(std::vector<std::string>& head, size_t at) const {
  std::vector<std::string> titles;
  for (const std::string& field : fields_)
    titles.emplace_back(std::ranges::find(kFields, field, &Field::name)->title);
  head.insert(head.begin() + static_cast<std::ptrdiff_t>(at), titles.begin(), titles.end());
  if (names_) head.insert(head.begin(), "name");
}

void VaryingFields::insert_values(std::vector<std::string>& cells, size_t at, const json& row) const {
  std::vector<std::string> values;
  for (const std::string& field : fields_) values.push_back(value(field, row));
  cells.insert(cells.begin() + static_cast<std::ptrdiff_t>(at), values.begin(), values.end());
  if (names_)
    cells.insert(cells.begin(), row.at("name").is_string() ? row.at("name").get<std::string>() : "");
}

}  // namespace stp
