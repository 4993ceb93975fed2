#include "stp/base/error.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

namespace stp {
namespace {

std::string message(const std::string& file, const std::string& field, const std::string& problem,
                    const std::string& remedy) {
  std::string text;
  for (const std::string& part : {file, field})
    if (!part.empty()) text += part + ": ";
  text += problem;
  if (!remedy.empty()) text += "; " + remedy;
  return printable(text);
}

}  // namespace

std::string shown(const char* format, double value) {
  char text[400];  // also fits the largest numbers
  std::snprintf(text, sizeof text, format, value);
  return text;
}

std::string counted(size_t count, const std::string& what) {
  return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

std::string printable(const std::string& text) {
  std::string shown;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const auto next = static_cast<unsigned char>(i + 1 < text.size() ? text[i + 1] : 0);
    const bool two_bytes = byte == 0xC2 && next >= 0x80 && next <= 0x9F;  // U+0080 to U+009F
    shown += byte < ' ' || byte == 0x7F || two_bytes ? '?' : text[i];
    if (two_bytes) ++i;
  }
  return shown;
}

// std::regex would cost more than a second of compile time.
std::string without_numbers(std::string text) {
  const char* const digits = "0123456789";
  for (size_t at = 0; (at = text.find_first_of(digits, at)) != std::string::npos; ++at) {
    const size_t end = std::min(text.find_first_not_of(digits, at), text.size());
    const bool begins = at == 0 || std::strchr(" (", text[at - 1]) != nullptr;
    if (begins && std::strchr(" ,;:)", text.c_str()[end]) != nullptr) text.replace(at, end - at, "N");
  }
  return text;
}

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

InputError InputError::moved(const std::string& file, const std::string& field) const {
  return {file, field, problem_, remedy_};
}

InputError InputError::with_remedy(const std::string& also) const {
  return {file_, field_, problem_, remedy_ + "; " + also};
}

InputError InputError::below(const std::string& parent) const {
  if (parent.empty()) return *this;
  return {file_, field_.empty() ? parent : parent + "." + field_, problem_, remedy_};
}

}  // namespace stp
