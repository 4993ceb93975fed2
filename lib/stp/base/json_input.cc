#include "stp/base/json_input.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>

namespace stp {
namespace {

using nlohmann::json;

std::string type_of(const json& value) {
  if (value.is_number_float()) {
    const double number = value.get<double>();
    return number != std::floor(number) ? "a number with a fraction"
                                        : "a number with a point, an exponent or too many digits";
  }
  if (value.is_number()) return "a number";
  const std::string name = value.type_name();
  return (name == "array" || name == "object" ? "an " : name == "null" ? "" : "a ") + name;
}

size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substitute = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substitute});
    }
  }
  return row[b.size()];
}

// "line:column" of the byte that is number `byte`, from 1; columns are bytes.
std::string line_and_column(const std::string& text, size_t byte) {
  const size_t at = std::min(std::max(byte, size_t{1}) - 1, text.size());
  const size_t line_begin = at == 0 ? 0 : text.rfind('\n', at - 1) + 1;  // npos + 1 is 0
  return std::to_string(1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at), '\n')) +
         ":" + std::to_string(at - line_begin + 1);
}

std::string read_all(const std::string& path) {
  std::error_code unreadable;
  std::ifstream file(path, std::ios::binary);
  std::string text;
  std::array<char, 1 << 16> piece;
  const bool folder = std::filesystem::is_directory(path, unreadable);
  while (!folder && file.read(piece.data(), piece.size()).gcount() > 0) {
    text.append(piece.data(), file.gcount());
    if (text.size() > kLargestInput)
      throw InputError(path, "", "is larger than " + std::to_string(kLargestInput >> 20) + " MiB",
                       "name a smaller file");
  }
  if (folder) throw InputError(path, "", "is a folder", "name a file");
  if (!file.is_open() || unreadable || file.bad())
    throw InputError(path, "", "cannot be read", "check the path and its permissions");
  return text;
}

}  // namespace

json parse_json(const std::string& text, const std::string& name) {
  if (text.find_first_not_of(" \t\r\n") == std::string::npos)
    throw InputError(name, "", "is empty", "write a JSON object");
  // The parser takes a NUL byte for the end of its input.
  if (text.find('\0') != std::string::npos)
    throw InputError(name, "", "holds a NUL byte", "save it as plain text");
  // The objects that are being read, each with its keys so far and the last of these. Together the last ones
  // are the probable place of an error; it lacks the numbers of elements.
  std::vector<std::pair<std::set<std::string>, std::string>> open;
  const auto place_of_error = [&] {
    std::string place;
    for (const auto& [keys, last] : open) place += (place.empty() || last.empty() ? "" : ".") + last;
    return place;
  };
  const auto refuse_twice = [&](int depth, json::parse_event_t event, json& parsed) {
    if (depth > kDeepestJson)
      throw InputError(name, "", "is nested more than " + std::to_string(kDeepestJson) + " deep",
                       "flatten it");
    if (event == json::parse_event_t::object_start) open.emplace_back();
    if (event == json::parse_event_t::object_end) open.pop_back();
    if (event == json::parse_event_t::key) {
      auto& [keys, last] = open.back();
      last = parsed.get<std::string>();
      if (!keys.insert(last).second)
        throw InputError(name, place_of_error(), "is given twice", "keep one of them");
    }
    return true;
  };
  try {
    return json::parse(text, refuse_twice);
  } catch (const json::parse_error& error) {
    const std::string reason = error.what();
    const auto because = [&](const char* words) { return reason.find(words) != std::string::npos; };
    const std::string place = name + ":" + line_and_column(text, error.byte);
    if (because("UTF-8"))
      throw InputError(place, place_of_error(), "holds bytes that are not UTF-8", "save it as UTF-8 text");
    if (because("; expected end of input"))
      throw InputError(place, "", "text follows the end of the JSON value", "remove it");
    throw InputError(place, place_of_error(), "is not valid JSON",
                     "numbers must be finite and plain, strings quoted, no comma before a closing bracket");
  } catch (const json::out_of_range&) {
    throw InputError(name, place_of_error(), "holds a number beyond double precision",
                     "write a finite number");
  }
}

std::string read_file(const std::string& path) {
  if (path == "-") return read_file("/dev/stdin");
  std::error_code ignored;
  const auto type = std::filesystem::status(path, ignored).type();
  if (type != std::filesystem::file_type::fifo && type != std::filesystem::file_type::character)
    return read_all(path);
  static std::map<std::string, std::string> streams;  // can be read once, and scenarios are read twice
  static std::mutex reading;
  const std::lock_guard lock(reading);
  const auto [stream, first] = streams.try_emplace(path);
  if (first) stream->second = read_all(path);
  return stream->second;
}

std::string read_text_file(const std::string& path) {
  std::string text = read_file(path);
  if (text.starts_with("\xFF\xFE") || text.starts_with("\xFE\xFF") || text.find('\0') != std::string::npos)
    throw InputError(path, "", "holds NUL bytes: it is UTF-16, or no text", "save it as UTF-8 text");
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";  // spreadsheets write it before UTF-8
  if (text.starts_with(kByteOrderMark)) text.erase(0, kByteOrderMark.size());
  return text;
}

void check_utf8(const std::string& text, const std::string& name) {
  const std::string valid = valid_utf8(text);  // the same up to the first byte that is not
  const auto first = std::ranges::mismatch(text, valid).in1;
  if (first != text.end())
    throw InputError(name + ":" + line_and_column(text, 1 + static_cast<size_t>(first - text.begin())), "",
                     "holds bytes that are not UTF-8", "save it as UTF-8 text");
}

json read_json_file(const std::string& path) { return parse_json(read_text_file(path), path); }

std::string json_text(const json& value, int indent) {
  return value.dump(indent, ' ', false, json::error_handler_t::replace);
}

std::string json_text(const std::string& text) { return json_text(json(text)); }

std::string valid_utf8(const std::string& text) { return json::parse(json_text(text)).get<std::string>(); }

JsonInput::JsonInput(const json& value, std::string file, std::string field)
    : value_(&value), file_(std::move(file)), field_(std::move(field)) {
  if (!value.is_object())
    throw InputError(file_, field_, "must be an object, not " + type_of(value), "write {…}");
}

JsonInput::JsonInput(const json& value, const std::string& field, JsonInput& defaults)
    : JsonInput(value, defaults.file_, field) {
  defaults_ = &defaults;
}

JsonInput JsonInput::of_file(const std::string& path) {
  auto whole = std::make_shared<const json>(read_json_file(path));
  JsonInput input(*whole, path);
  input.whole_ = std::move(whole);
  return input;
}

bool JsonInput::own(const std::string& key) const { return value_->contains(key); }

std::string JsonInput::path(const std::string& key) const {
  if (!own(key) && defaults_ != nullptr && defaults_->has(key)) return defaults_->path(key);
  return field_.empty() ? key : field_ + "." + key;
}

std::string JsonInput::element_path(const std::string& key, size_t index) const {
  return path(key) + "[" + std::to_string(index) + "]";
}

void JsonInput::ask(const std::string& key) {
  asked_.insert(key);
  if (defaults_ != nullptr) defaults_->ask(key);
}

std::vector<std::string> JsonInput::keys() const {
  std::vector<std::string> names;
  for (const auto& item : value_->items()) names.push_back(item.key());
  return names;
}

void JsonInput::collect_missing() { missing_ = std::make_shared<std::vector<std::string>>(); }

InputError JsonInput::missing_error() const {
  const bool one = missing_->size() == 1;
  return {file_, joined(*missing_), one ? "is missing" : "are missing", one ? "add it" : "add them"};
}

InputError JsonInput::error(const std::string& key, const std::string& problem,
                            const std::string& remedy) const {
  if (missing_ && !missing_->empty()) return missing_error();  // the wrong value may replace a missing field
  return {file_, path(key), problem, remedy};
}

bool JsonInput::has(const std::string& key) const {
  return own(key) || (defaults_ != nullptr && defaults_->has(key));
}

const json* JsonInput::required(const std::string& key) {
  ask(key);
  if (const auto found = value_->find(key); found != value_->end()) return &*found;
  if (defaults_ != nullptr && defaults_->has(key)) return defaults_->required(key);
  if (!missing_) {
    std::vector<std::string> others = keys();
    std::erase_if(others, [&](const std::string& other) { return asked_.contains(other); });
    const std::string guess = key.size() > 3 ? nearest(key, others) : "";
    throw error(key, "is missing", guess.empty() ? "add it" : "add it, or correct \"" + guess + "\"");
  }
  const std::string field = path(key);
  if (!absent_ && std::find(missing_->begin(), missing_->end(), field) == missing_->end())
    missing_->push_back(field);
  return nullptr;
}

const json& JsonInput::value(const std::string& key) {
  static const json null;
  const json* const found = required(key);
  return found != nullptr ? *found : null;
}

SharedJson JsonInput::shared_value(const std::string& key) {
  return std::make_shared<const json>(value(key));
}

void JsonInput::ignore(const std::string& key) { ask(key); }

std::string JsonInput::string(const std::string& key) {
  const json* const found = required(key);
  if (found == nullptr) return "missing";
  if (!found->is_string()) throw error(key, "must be a string, not " + type_of(*found), "quote it");
  auto text = found->get<std::string>();
  if (printable(text) != text)
    throw error(key, "has control characters, such as a new line or an escape sequence",
                "write it without them");
  return text;
}

std::string JsonInput::string_or(const std::string& key, const std::string& fallback) {
  ask(key);
  return has(key) ? string(key) : fallback;
}

bool JsonInput::boolean_or(const std::string& key, bool fallback) {
  ask(key);
  if (!has(key)) return fallback;
  const json& found = value(key);
  if (!found.is_boolean())
    throw error(key, "must be true or false, not " + type_of(found), "write true or false");
  return found.get<bool>();
}

namespace {

double checked_number(const json& found, double low, double high, const std::string& file,
                      const std::string& field) {
  const std::string range = "write a number from " + shown("%g", low) + " to " + shown("%g", high);
  if (!found.is_number()) throw InputError(file, field, "must be a number, not " + type_of(found), range);
  const double number = found.get<double>();
  if (!std::isfinite(number) || number < low || number > high)
    throw InputError(file, field, json_text(found) + " is out of range", range);
  return number;
}

int checked_integer(const json& found, int low, int high, const std::string& file, const std::string& field) {
  const bool huge = found.is_number_unsigned() && found.get<uint64_t>() > INT64_MAX;
  const bool above = huge || (found.is_number_integer() && found.get<int64_t>() > high);
  const bool open = high == std::numeric_limits<int>::max() && !above;
  const std::string range =
      "write a whole number from " + std::to_string(low) + (open ? " up" : " to " + std::to_string(high));
  if (!found.is_number_integer())
    throw InputError(file, field, "must be a whole number, not " + type_of(found), range);
  if (above || found.get<int64_t>() < low)
    throw InputError(file, field, json_text(found) + " is out of range", range);
  return found.get<int>();
}

}  // namespace

int JsonInput::integer(const std::string& key, int low, int high) {
  const json* const found = required(key);
  return found != nullptr ? checked_integer(*found, low, high, file_, path(key)) : high;
}

int JsonInput::integer_or(const std::string& key, int fallback, int low, int high) {
  ask(key);
  return has(key) ? integer(key, low, high) : fallback;
}

double JsonInput::number(const std::string& key, double low, double high) {
  const json* const found = required(key);
  return found != nullptr ? checked_number(*found, low, high, file_, path(key)) : high;
}

double JsonInput::number_or(const std::string& key, double fallback, double low, double high) {
  ask(key);
  return has(key) ? number(key, low, high) : fallback;
}

std::vector<int> JsonInput::integers(const std::string& key, int low, int high) {
  std::vector<int> numbers;
  const json& elements = array(key);
  for (size_t i = 0; i < elements.size(); ++i)
    numbers.push_back(checked_integer(elements[i], low, high, file_, element_path(key, i)));
  return numbers;
}

std::vector<double> JsonInput::numbers(const std::string& key, double low, double high) {
  std::vector<double> numbers;
  const json& elements = array(key);
  for (size_t i = 0; i < elements.size(); ++i)
    numbers.push_back(checked_number(elements[i], low, high, file_, element_path(key, i)));
  return numbers;
}

JsonInput JsonInput::object(const std::string& key) {
  static const json empty = json::object();
  const json* const found = required(key);
  JsonInput object(found != nullptr ? *found : empty, file_, path(key));
  object.missing_ = missing_;
  object.absent_ = found == nullptr;
  return object;
}

const json& JsonInput::array(const std::string& key) {
  static const json empty = json::array();
  const json* const found = required(key);
  if (found == nullptr) return empty;
  if (!found->is_array()) throw error(key, "must be an array, not " + type_of(*found), "write […]");
  return *found;
}

size_t JsonInput::size(const std::string& key) { return array(key).size(); }

JsonInput JsonInput::element(const std::string& key, size_t index) {
  JsonInput element(array(key).at(index), file_, element_path(key, index));
  element.missing_ = missing_;
  return element;
}

void JsonInput::done() const {
  std::vector<std::string> unknown, guesses;
  for (const auto& item : value_->items()) {
    if (asked_.contains(item.key())) continue;
    unknown.push_back(path(item.key()));
    const std::string guess = nearest(item.key(), {asked_.begin(), asked_.end()});
    if (!guess.empty()) guesses.push_back("did you mean \"" + guess + "\" for " + item.key() + "?");
  }
  std::string lacking;
  if (field_.empty() && missing_ && !missing_->empty()) {  // of the whole file
    if (unknown.empty()) throw missing_error();
    lacking = ", and " + joined(*missing_) + (missing_->size() == 1 ? " is missing" : " are missing");
  }
  if (unknown.empty()) return;
  if (unknown.size() == 1)
    throw UnknownField(file_, unknown[0], "is not a known field here" + lacking,
                       guesses.empty() ? lacking.empty() ? "remove it" : "remove or rename it"
                                       : guesses[0].substr(0, guesses[0].rfind(" for ")) + "?");
  throw UnknownField(file_, joined(unknown), "are not known fields here" + lacking,
                     "remove them" + (guesses.empty() ? "" : "; " + joined(guesses)));
}

std::vector<std::string> nearest_few(const std::string& word, std::vector<std::string> candidates,
                                     size_t most) {
  std::ranges::stable_sort(candidates, {}, [&](const std::string& candidate) {
    return std::pair(candidate.find(word) == std::string::npos, edit_distance(word, candidate));
  });
  candidates.resize(std::min(candidates.size(), most));
  return candidates;
}

std::string nearest(const std::string& word, const std::vector<std::string>& candidates) {
  const auto same_letters = [](char a, char b) { return std::tolower(a) == std::tolower(b); };
  for (const std::string& candidate : candidates)
    if (std::ranges::equal(word, candidate, same_letters)) return candidate;
  std::string best;
  size_t best_distance = word.size() / 3 + 2;
  for (const std::string& candidate : candidates) {
    const size_t distance = edit_distance(word, candidate);
    if (distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

std::string did_you_mean(const std::string& word, const std::vector<std::string>& candidates) {
  const std::string guess = nearest(word, candidates);
  return guess.empty() ? "" : "did you mean " + guess + "? ";
}

}  // namespace stp
