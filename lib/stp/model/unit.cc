#include "stp/model/unit.h"

namespace stp {

std::string to_string(Saved tensor) {
  static constexpr std::array kNames{"patches",
                                     "norm input",
                                     "norm input in fp32",
                                     "normalised input",
                                     "norm statistics",
                                     "dropout mask",
                                     "norm output",
                                     "q, k, v",
                                     "input of the norms of q and k",
                                     "statistics of the norms of q and k",
                                     "attention output",
                                     "output of the core",
                                     "log-sum-exp",
                                     "softmax",
                                     "mask of the softmax",
                                     "softmax after dropout",
                                     "fc1 output",
                                     "gate in fp32",
                                     "activated gate",
                                     "activation",
                                     "softmax in fp32",
                                     "gradient of the logits",
                                     "gradient of the first linear's output",
                                     "gradient of the output"};
  static_assert(kNames.size() == kSavedTensors);
  return kNames[static_cast<size_t>(tensor)];
}

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
