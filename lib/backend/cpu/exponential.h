// The exponential function in a form that compilers vectorise, since it is most of the work that is not
// BLAS's.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace stp {

/// Within 2 units in the last place from −87 to 88; beyond, as at the ends. NaN stays NaN.
inline float exponential(float x) {
  constexpr float kLog2E = 1.44269504088896341F;
  constexpr float kLn2High = 0.693359375F, kLn2Low = -2.12194440e-4F;  // Cody and Waite
  constexpr float kRound = 12582912.0F;  // 1.5 · 2^23: adding it rounds to whole
  x = x > 88.0F ? 88.0F : x;
  x = x < -87.0F ? -87.0F : x;
  const float n = (x * kLog2E + kRound) - kRound;
  const float r = (x - n * kLn2High) - n * kLn2Low;
  // exp(r) on [−ln 2 / 2, ln 2 / 2] (Cephes' expf).
  float p = 1.9875691500e-4F;
  p = p * r + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  p = p * r * r + r + 1.0F;
  const auto power = static_cast<uint32_t>(static_cast<int32_t>(n) + 127) << 23;
  return p * std::bit_cast<float>(power);
}

/// The library's: float64 is for parity, not for speed.
inline double exponential(double x) { return std::exp(x); }

}  // namespace stp
