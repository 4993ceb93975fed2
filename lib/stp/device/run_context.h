// The state that all devices, streams and communicators of one backend share.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>

#include "stp/device/run_guard.h"

namespace stp {

/// The text for an op number given to Stream::begin, for error messages about `rank`.
using DescribeOp = std::function<std::string(int rank, uint32_t op)>;

class RunContext {
 public:
  /// `progress`: shared by the run's processes, if there are several.
  explicit RunContext(double deadline_s, Progress* progress = nullptr)
      : guard(std::chrono::duration<double>(deadline_s), progress) {}

  RunGuard guard;

  void describe_with(DescribeOp describe);
  /// "F0.1", or "op 17" if describe_with() was not called.
  [[nodiscard]] std::string words(int rank, uint32_t op) const;
  /// "rank 3, compute, F0.1"; without an op "rank 3, compute".
  [[nodiscard]] std::string where(int rank, const std::string& stream, std::optional<uint32_t> op) const;

 private:
  mutable std::mutex mutex_;
  DescribeOp describe_;
};

}  // namespace stp
