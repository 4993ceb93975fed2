// How many of its cases a property test runs. Ordinary builds run a third of the cases of nested loops, and
// all with STP_EFFORT=whole in the environment; the sanitizers, which slow everything down severalfold and
// look for other things, run fewer of these and of random draws.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <ranges>
#include <string_view>

namespace stp {

/// Of random draws, one of so many is run.
#if defined(__SANITIZE_THREAD__)
inline constexpr int kStride = 61;
#elif defined(__SANITIZE_ADDRESS__)
inline constexpr int kStride = 23;
#else
inline constexpr int kStride = 1;
#endif

/// Tests over all numbers of ranks go up to this one.
inline constexpr int kMostRanks = kStride > 1 ? 8 : 16;

/// Whether a case of nested loops is in the sample. Multiples of the golden ratio spread it evenly and fall
/// in step with no loop, whatever its length.
inline bool in_sample(uint32_t number) {
  const char* const effort = std::getenv("STP_EFFORT");
  const bool whole = effort != nullptr && std::string_view(effort) == "whole";
  const uint32_t one_of = kStride > 1 ? kStride : whole ? 1 : 3;
  return number * 2654435769U <= UINT32_MAX / one_of;
}

/// Whether the next case is in the sample.
class Sample {
 public:
  bool operator()() { return in_sample(next_++); }

 private:
  uint32_t next_ = 0;
};

/// `first`, and those of first + 1, …, end − 1 that are in the sample.
inline auto sample_of(int first, int end) {
  return std::views::iota(first, end) |
         std::views::filter([first](int i) { return i == first || in_sample(static_cast<uint32_t>(i)); });
}

}  // namespace stp
