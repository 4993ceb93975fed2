// The upper half of a float: its exponent, and 8 significant bits.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

namespace stp {

struct Bfloat16 {
  uint16_t bits = 0;

  Bfloat16() = default;
  /// Rounds to the nearest, ties to even. Values beyond the largest become infinite. NaN stays NaN.
  explicit Bfloat16(float value) {
    const auto all_bits = std::bit_cast<uint32_t>(value);
    const bool not_a_number = (all_bits & 0x7FFFFFFF) > 0x7F800000;
    const uint32_t half =
        0x7FFF + (all_bits >> 16 & 1);  // just below one half; one half where it goes up to even
    bits = static_cast<uint16_t>(not_a_number ? all_bits >> 16 | 0x40 : (all_bits + half) >> 16);
  }
  operator float() const { return std::bit_cast<float>(uint32_t{bits} << 16); }
};
static_assert(sizeof(Bfloat16) == 2);

/// The type that computes with elements of type T.
template <typename T>
using Wide = std::conditional_t<std::is_same_v<T, Bfloat16>, float, T>;

}  // namespace stp
