// What all devices, streams and communicators of one backend share.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "stp/device/run_guard.h"

namespace stp {

/// Words for the op numbers that Stream::begin is given, for failures of `rank`.
using DescribeOp = std::function<std::string(int rank, uint32_t op)>;

class RunContext {
 public:
  /// `progress`: of the run's processes, where there are several.
  explicit RunContext(double deadline_s, Progress* progress = nullptr)
      : own_(std::make_unique<RunGuard>(std::chrono::duration<double>(deadline_s), progress)), guard(*own_) {}
  /// Of a run that is more than this backend's; `of_run` outlives this.
  explicit RunContext(RunGuard& of_run) : guard(of_run) {}

 private:
  std::unique_ptr<RunGuard> own_;

 public:
  RunGuard& guard;

  void describe_with(DescribeOp describe);
  /// "F0.1", or "op 17" where nobody describes ops.
  [[nodiscard]] std::string words(int rank, uint32_t op) const;
  /// "rank 3, compute, F0.1"; without an op "rank 3, compute".
  [[nodiscard]] std::string where(int rank, const std::string& stream, std::optional<uint32_t> op) const;

 private:
  mutable std::mutex mutex_;
  DescribeOp describe_;
};

}  // namespace stp
