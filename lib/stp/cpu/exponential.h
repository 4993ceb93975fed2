// The exponential function in a form that compilers vectorise: it takes most of the time outside BLAS.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace stp::cpu {

/// Within 2 units in the last place from −87 to 88; arguments outside are clamped. NaN stays NaN.
inline float exponential(float x) {
  constexpr float kLog2E = 1.44269504088896341F;
  constexpr float kLn2High = 0.693359375F, kLn2Low = -2.12194440e-4F;  // Cody and Waite
  constexpr float kRound = 12582912.0F;  // 1.5 · 2^23: adding it rounds to whole numbers, in the lowest bits
  // Clamps with integer comparisons of the bits: positive floats are ordered as signed integers; negative
  // floats, as unsigned integers, are larger than these and ordered by magnitude. Comparisons of floats would
  // become branches, which prevent vectorisation.
  constexpr auto kMost = std::bit_cast<int32_t>(88.0F);
  constexpr auto kLeast = std::bit_cast<uint32_t>(-87.0F);
  const auto bits = std::bit_cast<int32_t>(x);
  const int32_t not_a_number = (0x7F800000 - (bits & 0x7FFFFFFF)) >> 31;  // all bits, or none
  const auto below = static_cast<uint32_t>(bits < kMost ? bits : kMost);
  x = std::bit_cast<float>(below < kLeast ? below : kLeast);
  const float shifted = x * kLog2E + kRound;
  const float n = shifted - kRound;
  const float r = (x - n * kLn2High) - n * kLn2Low;
  // exp(r) on [−ln 2 / 2, ln 2 / 2] (Cephes' expf).
  float p = 1.9875691500e-4F;
  p = p * r + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  p = p * r * r + r + 1.0F;
  p *= std::bit_cast<float>((std::bit_cast<uint32_t>(shifted) + 127) << 23);  // 2^n
  return std::bit_cast<float>(std::bit_cast<int32_t>(p) | not_a_number);
}

/// The standard library's function: float64 is for parity, not for speed.
inline double exponential(double x) { return std::exp(x); }

}  // namespace stp::cpu
