#include "stp/report/svg_text.h"

#include <charconv>

namespace stp {

std::string hex(const Colour& colour) {
  constexpr const char* kDigits = "0123456789abcdef";
  std::string text = "#";
  for (const int part : {colour.red, colour.green, colour.blue})
    text += {kDigits[part / 16], kDigits[part % 16]};
  return text;
}

const char* ink_on(const Colour& colour) {
  return 0.3 * colour.red + 0.59 * colour.green + 0.11 * colour.blue > 130 ? "#000" : "#fff";
}

std::string fixed_text(double value, int decimals) {
  char text[400];  // the largest double has 309 digits before its point
  const auto result = std::to_chars(text, text + sizeof text, value, std::chars_format::fixed, decimals);
  return {text, result.ptr};
}
std::string significant(double value, int digits) {
  char text[400];
  const auto result = std::to_chars(text, text + sizeof text, value, std::chars_format::general, digits);
  return {text, result.ptr};
}
std::string px(double value) {
  std::string text = fixed_text(value, 2);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text == "-0" ? "0" : text;
}

std::string escape_xml(const std::string& text) {
  std::string safe;
  for (const char c : text) {
    switch (c) {
      case '&':
        safe += "&amp;";
        break;
      case '<':
        safe += "&lt;";
        break;
      case '>':
        safe += "&gt;";
        break;
      case '"':
        safe += "&quot;";
        break;
      default:
        safe += static_cast<unsigned char>(c) < ' ' ? ' ' : c;  // XML has no other control characters
    }
  }
  return safe;
}

std::string attribute(const char* name, const std::string& value) {
  return " " + std::string(name) + "=\"" + value + "\"";
}

}  // namespace stp
