// Groups with one existing member, over emulated links (link_emulation.h). Each backend implements the moving
// of bytes.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "stp/device/group.h"
#include "stp/device/run_guard.h"
#include "stp/emulation/link_emulation.h"

namespace stp {

/// Delays of calls over emulated links, and their device memory.
struct EmulatedUse {
  int64_t calls = 0;
  /// Delays of calls beyond `Replay::times`: total and maximum.
  double late_s = 0, latest_s = 0;
  /// Link buffers of the call with the most; no memory tracker counts them. Calls of several groups may have
  /// buffers at once.
  size_t link_bytes = 0;

  EmulatedUse& operator+=(const EmulatedUse& other);
};

/// Counts the calls of one group, on any thread.
class EmulatedUseCounter {
 public:
  void count(double late_s, size_t link_bytes);
  /// Returns the use since the last call.
  EmulatedUse take();

 private:
  std::mutex mutex_;
  EmulatedUse use_;
};

/// A call as made by the group's only existing member.
struct EmulatedCall {
  CallKind kind;
  Part part;
  LinkEmulation link;  // for all ranks' data: an all-gather's output, a reduce-scatter's input
  int size = 1, index = 0;

  /// Throws std::runtime_error if the call takes longer than the run's deadline: nothing would progress
  /// during it.
  void refuse_endless(const RunGuard& guard) const;
};

/// A group of which this process drives one member. Every call takes at least `replay.times`. It copies as
/// many bytes as a rank of a ring or an end of a link copies in its own memory: a collective's input into
/// link buffers and out of them. It computes no sums: an all-reduce leaves its tensor unchanged, a
/// reduce-scatter outputs its own piece of the input, an all-gather repeats the input, a ring's transfer and
/// an all-to-all return their input as far as it goes, and a link's received tensors have fixed small finite
/// values. A call with a time longer than the run's deadline fails the run at once.
class EmulatedGroup : public Group {
 public:
  /// Each CTA of a call (link_ctas()) moves up to `piece` bytes at a time.
  EmulatedGroup(std::string name, const Replay& replay, const std::vector<int>& members, int64_t piece);

  /// Returns the use by calls since the last take_use(). Call it after the device was synchronised.
  [[nodiscard]] virtual EmulatedUse take_use() { return use_->take(); }

 protected:
  virtual void carry_out(EmulatedCall call) = 0;
  /// For the work of calls, which may outlive this group.
  [[nodiscard]] const std::shared_ptr<EmulatedUseCounter>& use() const { return use_; }

 private:
  void carry_out(const Call& call) final;

  const Replay replay_;
  const int64_t piece_;
  std::shared_ptr<EmulatedUseCounter> use_ = std::make_shared<EmulatedUseCounter>();
};

}  // namespace stp
