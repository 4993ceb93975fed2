#include "stp/model/saved.h"

#include <array>

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

}  // namespace stp
