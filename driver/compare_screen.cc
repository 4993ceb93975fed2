#include "compare_screen.h"

namespace stp {

using nlohmann::json;

std::optional<double> number_at(const json& holder, const char* key) {
  if (!holder.is_object()) return std::nullopt;
  const auto found = holder.find(key);
  if (found == holder.end() || !found->is_number()) return std::nullopt;
  return found->get<double>();
}

std::string word_of(const json& value) {
  if (value.is_null()) return "–";
  if (value.is_boolean()) return value.get<bool>() ? "yes" : "no";
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_array()) return value.dump();
  std::string list;
  for (const json& each : value) list += (list.empty() ? "" : ", ") + word_of(each);
  return list.empty() ? "nothing" : list;
}

std::string configuration_text(const json& configuration) {
  json left = configuration;
  const auto take = [&](const char* key) {
    json value = left.value(key, json());
    left.erase(key);
    return value;
  };
  std::string text;
  const auto add = [&](const std::string& part) { text += (text.empty() ? "" : ", ") + part; };
  if (const json model = take("model"); !model.is_null()) add(word_of(model));
  const json seq = take("seq"), size = take("microbatch_size");
  if (!seq.is_null()) {
    add("s " + word_of(seq) + (size.is_null() ? "" : " × " + word_of(size)));
  } else if (!size.is_null() && size != 1) {
    add("microbatch size " + word_of(size));
  }
  std::string grid;
  for (const auto& [key, name] : {std::pair{"tp", "TP"}, {"pp", "PP"}, {"cp", "CP"}, {"dp", "DP"}}) {
    const json ranks = take(key);
    const bool usual = *key == 't' || *key == 'p';
    if (!ranks.is_null() && (usual || ranks != 1))
      grid += (grid.empty() ? "" : " ") + std::string(name) + word_of(ranks);
  }
  if (!grid.empty()) add(grid);
  if (const json microbatches = take("microbatches"); !microbatches.is_null())
    add("m " + word_of(microbatches));
  for (const auto& [key, value] : left.items()) add(key + " " + word_of(value));
  return text;
}

std::string differences_text(const json& comparison) {
  std::string text;
  for (const json& difference : comparison.at("differs")) {
    text += "  " + word_of(difference.at("field")) + ":";
    // A revision's first digits tell it.
    const size_t length = difference.at("field") == "revision" ? 12 : std::string::npos;
    for (size_t i = 0; i < difference.at("values").size(); ++i)
      text += (i > 0 ? " | " : " ") + word_of(difference.at("values")[i]).substr(0, length);
    text += "\n";
  }
  return text.empty() ? "" : "They differ in\n" + text;
}

}  // namespace stp
