// What `stp compare` shows on screen, from what it writes as JSON (results/schema/comparison.schema.json).
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace stp {

std::string records_screen(const nlohmann::json& comparison);
std::string benchmarks_screen(const nlohmann::json& comparison);
std::string profiles_screen(const nlohmann::json& comparison);

// What these share:
/// The number at `key`; none where there is null or nothing.
std::optional<double> number_at(const nlohmann::json& holder, const char* key);
/// A field's value for people: null as "–", true and false as yes and no.
std::string word_of(const nlohmann::json& value);
/// "llm-12.1b, s 6144 × 1, TP4 PP4, m 192" and what else `configuration` says.
std::string configuration_text(const nlohmann::json& configuration);
/// In what the files differ besides their figures, a line each; "" if in nothing.
std::string differences_text(const nlohmann::json& comparison);

}  // namespace stp
