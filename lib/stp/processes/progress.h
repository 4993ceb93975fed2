// The progress of a run. Deadlines depend on it.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>

#include "stp/base/error.h"

namespace stp {

/// Deadlines for what processes do between runs, which does not count as progress: start, texts, end.
inline constexpr int kPatience = 6;

/// This process's progress, and what it knows of the others'.
struct Progress {
  std::atomic<uint64_t> done{0};       // pieces of work done by this process
  std::atomic<int> working{0};         // threads of this process that are computing
  std::atomic<uint64_t> elsewhere{0};  // changes while other processes do something or compute
};

/// Measures how long nothing has moved or computed, as seen by one thread that looks now and then.
class Idle {
 public:
  explicit Idle(const Progress& progress) : progress_(progress), seen_(moves()) {}
  std::chrono::duration<double> time() {
    const auto now = std::chrono::steady_clock::now();
    if (const uint64_t moves_now = moves(); moves_now != seen_ || progress_.working > 0) {
      seen_ = moves_now;
      since_ = now;
    }
    return now - since_;
  }

 private:
  [[nodiscard]] uint64_t moves() const { return progress_.done + progress_.elsewhere; }

  const Progress& progress_;
  uint64_t seen_;
  std::chrono::steady_clock::time_point since_ = std::chrono::steady_clock::now();
};

/// "`what`: nothing moved for 10 s".
inline std::string nothing_moved(const std::string& what, std::chrono::duration<double> time) {
  return what + ": nothing moved for " + shown("%g", time.count()) + " s";
}

}  // namespace stp
