// Strict reading of hand-written JSON: every key must be known, every value must have its type and range, and
// every error names file, field and remedy.
#pragma once

#include <limits>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <set>
#include <string>
#include <vector>

#include "stp/base/error.h"

namespace stp {

/// JSON as read, for structs that pass it on.
using SharedJson = std::shared_ptr<const nlohmann::json>;

/// Largest input file in bytes. The suite's largest possible schedules exceed it and are refused as input.
inline constexpr size_t kLargestInput = size_t{256} << 20;

/// Returns all of `path`, or of standard input if it is "-"; a stream may be read again. Throws InputError if
/// it cannot be read or is larger than kLargestInput.
std::string read_file(const std::string& path);
/// The same for UTF-8 text; removes a byte order mark. InputError for UTF-16 and other text with NUL bytes.
std::string read_text_file(const std::string& path);
/// Throws InputError with line and column if `text`, of the file `name`, is not UTF-8.
void check_utf8(const std::string& text, const std::string& name);

/// Recursion copies and destroys values: deeper ones could exhaust the stack.
inline constexpr int kDeepestJson = 100;

/// Reads and parses `path`. Refuses a missing file, a syntax error (NaN and Infinity among them), a key given
/// twice and trailing text, each as InputError.
nlohmann::json read_json_file(const std::string& path);

/// The same for text already in memory; `name` stands for the file in messages.
nlohmann::json parse_json(const std::string& text, const std::string& name);

/// `value` as text: on one line, or with `indent` ≥ 0 on many. Strings' bytes that are not UTF-8 are
/// replaced.
std::string json_text(const nlohmann::json& value, int indent = -1);
/// A string as JSON text, with its quotes.
std::string json_text(const std::string& text);
/// `text` with bytes that are not UTF-8 replaced.
std::string valid_utf8(const std::string& text);

/// A field that its reader does not know: perhaps the misspelled name of one that is missing.
class UnknownField : public InputError {
 public:
  using InputError::InputError;
};

/// One JSON object being read: fetch its fields by name and type, then call `done()`, which refuses the rest.
class JsonInput {
 public:
  /// `field` is the path of `value` inside the file ("" for the whole file).
  JsonInput(const nlohmann::json& value, std::string file, std::string field = "");
  /// The same with `defaults` (which must outlive this) for fields that `value` does not have. A key read
  /// from this object counts as read from `defaults` too. Errors name the object that holds the field.
  JsonInput(const nlohmann::json& value, const std::string& field, JsonInput& defaults);
  /// All of the file `path`, as read_json_file().
  static JsonInput of_file(const std::string& path);

  /// From now on, missing fields here and in nested objects do not end the reading: each returns some value
  /// in range. The file's done(), or an error() before it, names them all. For readers that do nothing else
  /// before done().
  void collect_missing();

  [[nodiscard]] bool has(const std::string& key) const;

  /// A string without control characters.
  std::string string(const std::string& key);
  std::string string_or(const std::string& key, const std::string& fallback);
  bool boolean_or(const std::string& key, bool fallback);
  /// A whole number in [low, high].
  int integer(const std::string& key, int low, int high = std::numeric_limits<int>::max());
  int integer_or(const std::string& key, int fallback, int low, int high = std::numeric_limits<int>::max());
  /// A finite number in [low, high].
  double number(const std::string& key, double low, double high);
  double number_or(const std::string& key, double fallback, double low, double high);
  std::vector<int> integers(const std::string& key, int low, int high = std::numeric_limits<int>::max());
  std::vector<double> numbers(const std::string& key, double low, double high);
  JsonInput object(const std::string& key);
  /// The elements of an array, of any type.
  const nlohmann::json& array(const std::string& key);
  /// The number of elements of an array of objects; one of its elements.
  size_t size(const std::string& key);
  JsonInput element(const std::string& key, size_t index);
  /// The value itself, unchecked; throws if it is missing.
  const nlohmann::json& value(const std::string& key);
  /// A copy of the value.
  SharedJson shared_value(const std::string& key);
  /// Accepts the key without reading its value (a comment, a source).
  void ignore(const std::string& key);

  /// Refuses all keys that were not read (UnknownField), and suggests the known key nearest to each.
  void done() const;

  /// An error about this object's field `key`.
  [[nodiscard]] InputError error(const std::string& key, const std::string& problem,
                                 const std::string& remedy) const;
  [[nodiscard]] const std::string& file() const { return file_; }
  [[nodiscard]] std::string path(const std::string& key) const;
  [[nodiscard]] std::vector<std::string> keys() const;

 private:
  [[nodiscard]] bool own(const std::string& key) const;
  [[nodiscard]] std::string element_path(const std::string& key, size_t index) const;
  void ask(const std::string& key);
  /// Null if the field is missing and missing fields are collected.
  const nlohmann::json* required(const std::string& key);
  [[nodiscard]] InputError missing_error() const;

  SharedJson whole_;  // for of_file()
  const nlohmann::json* value_;
  std::string file_, field_;
  std::set<std::string> asked_;
  JsonInput* defaults_ = nullptr;
  std::shared_ptr<std::vector<std::string>> missing_;  // paths; null: not collected
  bool absent_ = false;                                // this object itself is missing
};

/// The candidate nearest to `word` by edit distance, or "" if none is near: for "did you mean".
std::string nearest(const std::string& word, const std::vector<std::string>& candidates);
/// "did you mean X? ", or "" if no candidate is near.
std::string did_you_mean(const std::string& word, const std::vector<std::string>& candidates);
/// At most `most` of the candidates: those that contain `word` first, then by edit distance.
std::vector<std::string> nearest_few(const std::string& word, std::vector<std::string> candidates,
                                     size_t most);

}  // namespace stp
