// What a backend finds of what it needs on this machine: a line of `stp doctor`.
#pragma once

#include <algorithm>
#include <chrono>
#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "stp/base/error.h"

namespace stp {

struct Finding {
  // Without `missing` nothing runs; `absent`: nor is there such a device.
  enum class State { works, falls_back, missing, absent };
  std::string what;
  State state;
  std::string detail;  // a version and where it is; or what takes its place, or what to do
  double seconds = 0;  // that the check took
};

/// Findings in the order of their checks, each of which took the time since the one before it.
class Findings {
 public:
  void add(Finding found) {
    const auto now = std::chrono::steady_clock::now();
    found.seconds = std::chrono::duration<double>(now - std::exchange(since_, now)).count();
    all_.push_back(std::move(found));
  }
  /// Of another list, with their own times.
  void append(std::vector<Finding> others) {
    std::ranges::move(others, std::back_inserter(all_));
    since_ = std::chrono::steady_clock::now();
  }
  [[nodiscard]] const std::vector<Finding>& all() const { return all_; }

 private:
  std::vector<Finding> all_;
  std::chrono::steady_clock::time_point since_ = std::chrono::steady_clock::now();
};

/// What to say if the checks before a run took longer than they should, all together.
inline std::optional<Finding> too_slow(const std::vector<Finding>& findings) {
  constexpr double kMost = 2;  // seconds
  double all = 0;
  for (const Finding& each : findings) all += each.seconds;
  if (all <= kMost) return std::nullopt;
  const Finding& slowest = *std::ranges::max_element(findings, {}, &Finding::seconds);
  return Finding{"these checks", Finding::State::falls_back,
                 "took " + shown("%.1f", all) + " s, over " + shown("%g", kMost) + " s; the longest was \"" +
                     slowest.what + "\", " + shown("%.1f", slowest.seconds) + " s"};
}

/// "WHAT: DETAIL" of the first that is missing; "" if none is.
inline std::string lack_of(const std::vector<Finding>& findings) {
  for (const Finding& each : findings)
    if (each.state >= Finding::State::missing) return each.what + ": " + each.detail;
  return "";
}

}  // namespace stp
