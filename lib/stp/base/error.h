// Errors that a user can fix. Everything else (bugs, failures of the machine) stays a plain exception.
#pragma once

#include <functional>
#include <stdexcept>
#include <string>

namespace stp {

/// Joins the elements of `range`, each as text from `word_of`.
template <typename Range, typename WordOf = std::identity>
std::string joined(const Range& range, WordOf word_of = {}, const char* separator = ", ") {
  std::string text;
  for (const auto& each : range) {
    if (!text.empty()) text += separator;
    text += std::invoke(word_of, each);
  }
  return text;
}

/// Formats `value` by printf's `format` for one double, such as "%g".
std::string shown(const char* format, double value);

/// "1 row", "2 rows".
std::string counted(size_t count, const std::string& what);

/// `text` with "?" for control characters, which a terminal would obey.
std::string printable(const std::string& text);

/// `text` with N in place of each whole number that is a word.
std::string without_numbers(std::string text);

/// Bad input: the program ends with exit code 2. `what()` reads "file: field: problem; remedy".
class InputError : public std::runtime_error {
 public:
  /// Any part may be empty and is then left out of the message.
  InputError(const std::string& file, const std::string& field, const std::string& problem,
             const std::string& remedy);

  /// The same error with `file` (a generator that refuses p and m does not know the scenario's file).
  [[nodiscard]] InputError in_file(const std::string& file) const;
  /// The same error with `field`, if it names none.
  [[nodiscard]] InputError in_field(const std::string& field) const;
  /// The same error as of `file` and `field`, in place of its own.
  [[nodiscard]] InputError moved(const std::string& file, const std::string& field) const;
  /// The same error whose remedy ends with `also`.
  [[nodiscard]] InputError with_remedy(const std::string& also) const;
  /// The same error with its field under `parent` ("" changes nothing).
  [[nodiscard]] InputError below(const std::string& parent) const;

  [[nodiscard]] const std::string& file() const { return file_; }
  [[nodiscard]] const std::string& field() const { return field_; }

 private:
  std::string file_, field_, problem_, remedy_;
};

}  // namespace stp
