// What a backend finds of what it needs on this machine: a line of `stp doctor`.
#pragma once

#include <string>

namespace stp {

struct Finding {
  enum class State { works, falls_back, missing };  // without `missing` nothing runs
  std::string what;
  State state;
  std::string detail;  // a version and where it is; or what takes its place, or what to do
};

}  // namespace stp
