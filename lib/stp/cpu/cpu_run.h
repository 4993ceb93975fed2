// The state that all devices, streams and communicators of one CPU backend share.
#pragma once

#include <chrono>
#include <utility>

#include "stp/cpu/workers.h"
#include "stp/device/backend.h"
#include "stp/device/run_context.h"

namespace stp::cpu {

class CpuRun : public RunContext {
 public:
  explicit CpuRun(double deadline_s, Progress* progress = nullptr, OpHooks of_ops = {})
      : RunContext(deadline_s, progress), hooks(std::move(of_ops)) {}

  const OpHooks hooks;
  Workers workers{guard};

  /// Seconds since the run was made: the clock of all devices.
  [[nodiscard]] double now() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - epoch_).count();
  }

 private:
  const std::chrono::steady_clock::time_point epoch_ = std::chrono::steady_clock::now();
};

}  // namespace stp::cpu
