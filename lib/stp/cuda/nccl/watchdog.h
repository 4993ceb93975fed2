// Ends the process when a blocking call of NCCL does not return: the thread cannot leave the call, and a
// communicator must not be aborted during its call. Work that the GPU does not end is found elsewhere
// (CudaRun::wait_until).
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "stp/device/run_guard.h"

namespace stp::cuda {

class Watchdog {
 public:
  /// `guard` must outlive this.
  explicit Watchdog(RunGuard& guard);
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;
  ~Watchdog();

  /// A call, from here to the end of the scope, by one thread at a time. If nothing moves for `patience`
  /// deadlines meanwhile, the process says "`what` does not return: …" and ends with exit code 1.
  class Call {
   public:
    Call(Watchdog& watchdog, std::string what, double patience);
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;
    ~Call();

   private:
    Watchdog& watchdog_;
  };

 private:
  struct Current {
    std::string what;
    Idle idle;
    std::chrono::duration<double> limit;
  };
  void watch();

  RunGuard& guard_;
  std::mutex mutex_;
  std::condition_variable ends_;
  std::optional<Current> current_;
  bool over_ = false;
  std::thread thread_;  // last: it uses all others
};

}  // namespace stp::cuda
