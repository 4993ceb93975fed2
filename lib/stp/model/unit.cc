#include "stp/model/unit.h"

namespace stp {

std::string to_string(Unit unit) {
  static constexpr std::array names{"attn",    "mlp",         "head",       "embedding",
                                    "patches", "vision_attn", "vision_mlp", "merger"};
  return names[static_cast<size_t>(unit)];
}

std::string suffix(UnitPart part) {
  static constexpr std::array suffixes{"", "_norm", "_before", "_core", "_after"};
  return suffixes[static_cast<size_t>(part)];
}

std::string to_string(Unit unit, UnitPass pass) {
  static constexpr std::array names{"F", "I", "W_early", "W"};
  return to_string(unit) + "." + names[static_cast<size_t>(pass)];
}

}  // namespace stp
