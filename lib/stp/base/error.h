// Errors that a user can mend. Everything else is a bug or the machine's fault and stays a plain exception.
#pragma once

#include <stdexcept>
#include <string>

namespace stp {

/// Bad input: the program ends with exit code 2. `what()` reads "file: field: problem; remedy".
class InputError : public std::runtime_error {
 public:
  /// Any part may be empty and is then left out of the message.
  InputError(const std::string& file, const std::string& field, const std::string& problem,
             const std::string& remedy);

  /// The same error, said of `file` (a generator refuses p and m without knowing which scenario asked).
  [[nodiscard]] InputError in_file(const std::string& file) const;
  /// The same error, said of `field`, where none is named yet.
  [[nodiscard]] InputError in_field(const std::string& field) const;
  /// The same error, its field being part of `parent` ("" changes nothing).
  [[nodiscard]] InputError below(const std::string& parent) const;

 private:
  std::string file_, field_, problem_, remedy_;
};

}  // namespace stp
