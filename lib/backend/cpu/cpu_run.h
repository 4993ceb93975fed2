// What all devices, streams and communicators of one CPU backend share.
#pragma once

#include <chrono>
#include <mutex>
#include <optional>
#include <string>

#include "stp/backend/backend.h"
#include "stp/backend/run_guard.h"

namespace stp {

class CpuRun {
 public:
  explicit CpuRun(double deadline_s) : guard(std::chrono::duration<double>(deadline_s)) {}

  RunGuard guard;

  /// Seconds since this was made: the clock of all devices.
  [[nodiscard]] double now() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - epoch_).count();
  }

  void describe_with(DescribeOp describe);
  /// "rank 3, compute, F0.1"; without an op "rank 3, compute".
  [[nodiscard]] std::string where(int rank, const std::string& stream, std::optional<uint32_t> op) const;

 private:
  const std::chrono::steady_clock::time_point epoch_ = std::chrono::steady_clock::now();
  mutable std::mutex mutex_;
  DescribeOp describe_;
};

}  // namespace stp
