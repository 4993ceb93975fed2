// Shared by all devices, streams and communicators of one backend.
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

/// The text of an op number given to Stream::begin, for failures of `rank`.
using DescribeOp = std::function<std::string(int rank, uint32_t op)>;

class RunContext {
 public:
  /// `progress`: of the run's processes, if there are several.
  explicit RunContext(double deadline_s, Progress* progress = nullptr)
      : own_(std::make_unique<RunGuard>(std::chrono::duration<double>(deadline_s), progress)), guard(*own_) {}
  /// Uses the guard of a run that spans more than this backend; `of_run` must outlive this.
  explicit RunContext(RunGuard& of_run) : guard(of_run) {}

 private:
  std::unique_ptr<RunGuard> own_;

 public:
  RunGuard& guard;

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
