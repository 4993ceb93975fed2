// Communication with ranks that do not exist, at the pace that their links are said to have: what is the same
// on all devices. Who moves the bytes at this pace is each backend's.
#pragma once

#include <memory>
#include <vector>

#include "stp/device/communicator.h"
#include "stp/device/group_call.h"
#include "stp/device/run_guard.h"
#include "stp/device/traffic_counter.h"
#include "stp/emulation/paced_use.h"
#include "stp/emulation/pacing.h"

namespace stp {

/// A call as one member of the group makes it.
struct PacedCall {
  CallPart part;
  Pace pace;  // of the whole: an all-gather's output, a reduce-scatter's input
  int size = 1, index = 0;

  /// Throws std::runtime_error if the call takes longer than the run's deadline: nothing would move
  /// meanwhile.
  void refuse_endless(const RunGuard& guard) const;
};

/// The end of `members[index]`, alone. Every call takes `replay.times` at the least, and meanwhile copies
/// what a ring's or a link's end copies in its own memory: a collective's input into link buffers and out of
/// them. No sum is made: an all-reduce leaves its tensor as it was, a reduce-scatter its own piece of the
/// input, an all-gather's output is the input over and over, and what is received are small finite numbers,
/// the same each time. A call whose time is longer than the run's deadline fails the run at once.
class PacedCommunicator : public Communicator {
 public:
  /// Calls go over `collective_ctas` or `transfer_ctas`, each of which moves up to `piece` bytes at a time.
  PacedCommunicator(Replay replay, std::vector<int> members, int index, int64_t piece);

  [[nodiscard]] int size() const override { return static_cast<int>(members_.size()); }
  [[nodiscard]] int index() const override { return index_; }
  void all_reduce(Stream& stream, Reduce reduce, const Tensor& tensor) override;
  void all_gather(Stream& stream, const Tensor& in, const Tensor& out) override;
  void reduce_scatter(Stream& stream, const Tensor& in, const Tensor& out) override;
  void send(Stream& stream, const Tensor& tensor, int to) override;
  void receive(Stream& stream, const Tensor& tensor, int from) override;
  [[nodiscard]] Traffic traffic() const override { return counter_->traffic(); }
  /// Of the calls since this was last asked. After the device was synchronised.
  [[nodiscard]] PacedUse take_paced_use() { return paced_->take(); }

 protected:
  /// Has `call` carried out where the stream comes to it, and counted.
  virtual void enter(Stream& stream, PacedCall call) = 0;
  /// For who carries calls out, which may be after this end is gone.
  [[nodiscard]] const std::shared_ptr<TrafficCounter>& counter() const { return counter_; }
  [[nodiscard]] const std::shared_ptr<PacedCounter>& paced() const { return paced_; }

 private:
  void give(Stream& stream, CallPart part);

  const Replay replay_;
  const std::vector<int> members_;
  const int index_;
  const int64_t piece_;
  std::shared_ptr<TrafficCounter> counter_ = std::make_shared<TrafficCounter>();
  std::shared_ptr<PacedCounter> paced_ = std::make_shared<PacedCounter>();
};

}  // namespace stp
