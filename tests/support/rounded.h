// What tensors keep of numbers.
#pragma once

#include "stp/device/bfloat16.h"
#include "stp/device/element_type.h"

namespace stp::testing_support {

/// What a tensor of the type keeps of a value.
inline double rounded(double value, DType type) {
  return with_element<Bfloat16>(type, "no rounding", [&](auto zero) {
    using T = decltype(zero);
    return static_cast<double>(T(static_cast<Wide<T>>(value)));
  });
}

}  // namespace stp::testing_support
