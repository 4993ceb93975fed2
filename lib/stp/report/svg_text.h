// The words that an SVG text is made of. Numbers come out the same on every machine, whatever its locale.
#pragma once

#include <string>

namespace stp {

struct Colour {
  int red, green, blue;
};
/// "#1f77b4".
std::string hex(const Colour& colour);
/// Black or white, whichever is easier to read on `colour`.
const char* ink_on(const Colour& colour);

std::string fixed_text(double value, int decimals);
std::string significant(double value, int digits);
/// A coordinate: at most two decimals, no trailing zeros.
std::string px(double value);

/// `text` as XML content or attribute value.
std::string escape_xml(const std::string& text);
/// ` name="value"`; `value` must be escaped already.
std::string attribute(const char* name, const std::string& value);

}  // namespace stp
