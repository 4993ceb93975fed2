// One call that members of a group of threads make together.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "stp/cpu/cpu_stream.h"
#include "stp/device/group_call.h"

namespace stp::cpu {

/// The parties come in any order, each on its own thread. When all are there, the elements are worked off in
/// pieces by whoever is awake, so that nobody waits for a thread that the system has not woken yet; an
/// element's value does not depend on who does it. No party leaves before all is done, so buffers are there
/// throughout.
class LocalCall {
 public:
  /// `name` says group and call, `ranks` those of the parties; both for texts of failures.
  LocalCall(std::string name, const std::vector<int>& ranks);

  /// True for the last party, which must then open the call. To be called from a task of `stream`.
  bool enter(size_t party, CallPart part, const CpuStream& stream);
  /// Throws std::runtime_error if the parts do not fit together.
  void open(const CpuRun& run);
  /// Does a share of the work, and waits until all is done.
  void finish(const CpuStream& stream);

 private:
  struct Party : CallParty {
    bool there = false;
    std::byte *in = nullptr, *out = nullptr;
  };

  void help();
  void do_range(size_t begin, size_t end) const;
  template <typename T>
  void reduce_range(size_t begin, size_t end) const;
  void copy_range(size_t begin, size_t end) const;
  [[nodiscard]] std::string missing() const;

  const std::string name_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Party> parties_;
  size_t come_ = 0;
  bool open_ = false, done_ = false;

  // Written before the call opens; the counters are then shared.
  size_t elements_ = 0, pieces_ = 0;
  std::atomic<size_t> next_{0}, finished_{0};
};

}  // namespace stp::cpu
