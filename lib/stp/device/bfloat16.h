// The upper half of a float: its exponent, and 8 significant bits.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

namespace stp {

struct Bfloat16 {
  uint16_t bits = 0;

  Bfloat16() = default;
  /// Rounds to the nearest, ties to even; what is larger than the largest becomes infinite. NaN stays NaN.
  explicit Bfloat16(float value) {
    const auto whole = std::bit_cast<uint32_t>(value);
    const bool not_a_number = (whole & 0x7FFFFFFF) > 0x7F800000;
    const uint32_t half =
        0x7FFF + (whole >> 16 & 1);  // just below one half; one half where it goes up to even
    bits = static_cast<uint16_t>(not_a_number ? whole >> 16 | 0x40 : (whole + half) >> 16);
  }
  operator float() const { return std::bit_cast<float>(uint32_t{bits} << 16); }
};
static_assert(sizeof(Bfloat16) == 2);

/// What elements of type T are computed in.
template <typename T>
using Wide = std::conditional_t<std::is_same_v<T, Bfloat16>, float, T>;

}  // namespace stp
