// What a backend finds of what it needs on this machine: a line of `stp doctor`.
#pragma once

#include <string>
#include <vector>

namespace stp {

struct Finding {
  enum class State { works, falls_back, missing };  // without `missing` nothing runs
  std::string what;
  State state;
  std::string detail;  // a version and where it is; or what takes its place, or what to do
};

/// "WHAT: DETAIL" of the first that is missing; "" if none is.
inline std::string lack_of(const std::vector<Finding>& findings) {
  for (const Finding& each : findings)
    if (each.state == Finding::State::missing) return each.what + ": " + each.detail;
  return "";
}

}  // namespace stp
