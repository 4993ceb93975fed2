#include "stp/base/error.h"

namespace stp {
namespace {

std::string message(const std::string& file, const std::string& field, const std::string& problem,
                    const std::string& remedy) {
  std::string text;
  for (const std::string& part : {file, field})
    if (!part.empty()) text += part + ": ";
  text += problem;
  if (!remedy.empty()) text += "; " + remedy;
  return text;
}

}  // namespace

InputError::InputError(const std::string& file, const std::string& field, const std::string& problem,
                       const std::string& remedy)
    : std::runtime_error(message(file, field, problem, remedy)),
      file_(file),
      field_(field),
      problem_(problem),
      remedy_(remedy) {}

InputError InputError::in_file(const std::string& file) const {
  return {file_.empty() ? file : file_, field_, problem_, remedy_};
}

InputError InputError::in_field(const std::string& field) const {
  return {file_, field_.empty() ? field : field_, problem_, remedy_};
}

InputError InputError::below(const std::string& parent) const {
  if (parent.empty()) return *this;
  return {file_, field_.empty() ? parent : parent + "." + field_, problem_, remedy_};
}

}  // namespace stp
