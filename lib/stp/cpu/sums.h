// Sums and maxima that vectorise, in an order that does not depend on the processor.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

namespace stp::cpu {

/// Σ value(i) in double, in four chains, so that additions need not wait for each other.
template <typename Value>
double sum_of(int64_t count, Value value) {
  std::array<double, 4> sums{};
  int64_t i = 0;
  for (; i + 4 <= count; i += 4)
    for (int64_t j = 0; j < 4; ++j) sums[j] += static_cast<double>(value(i + j));
  for (; i < count; ++i) sums[0] += static_cast<double>(value(i));
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

/// The largest of `count` ≥ 1 values, in eight chains, so that it vectorises (std::max, which takes
/// addresses, would not).
template <typename T>
T largest_of(int64_t count, const T* values) {
  std::array<T, 8> largest;
  largest.fill(values[0]);
  int64_t i = 0;
  for (; i + 8 <= count; i += 8)
    for (int64_t j = 0; j < 8; ++j) largest[j] = values[i + j] > largest[j] ? values[i + j] : largest[j];
  for (; i < count; ++i) largest[0] = std::max(largest[0], values[i]);
  return *std::max_element(largest.begin(), largest.end());
}

template <typename T>
double sum_of_squares(int64_t count, const T* values) {
  return sum_of(count, [&](int64_t i) {
    const auto value = static_cast<double>(values[i]);
    return value * value;
  });
}

}  // namespace stp::cpu
