// An end of a group whose members meet call by call: numbers the calls, counts nothing and moves nothing.
#pragma once

#include <map>
#include <memory>
#include <utility>

#include "stp/device/communicator.h"
#include "stp/device/group_call.h"
#include "stp/device/traffic_counter.h"

namespace stp {

class GroupCommunicator : public Communicator {
 public:
  GroupCommunicator(int size, int index) : size_(size), index_(index) {}

  [[nodiscard]] int size() const override { return size_; }
  [[nodiscard]] int index() const override { return index_; }
  void all_reduce(Stream& stream, Reduce reduce, const Tensor& tensor) override;
  void all_gather(Stream& stream, const Tensor& in, const Tensor& out) override;
  void reduce_scatter(Stream& stream, const Tensor& in, const Tensor& out) override;
  void send(Stream& stream, const Tensor& tensor, int to) override;
  void receive(Stream& stream, const Tensor& tensor, int from) override;
  [[nodiscard]] Traffic traffic() const override { return counts_->traffic(); }

 protected:
  /// This end is party `party` of the call: of a transfer 0 is the sender.
  virtual void enter(Stream& stream, CallPart part, const CallId& id, size_t party) = 0;
  /// For who carries calls out, which may be after this end is gone.
  [[nodiscard]] const std::shared_ptr<TrafficCounter>& counts() const { return counts_; }

 private:
  void number(Stream& stream, CallPart part, int from, int to);

  const int size_, index_;
  std::map<std::pair<int, int>, int64_t> next_;  // by from and to; collectives: −1, −1
  std::shared_ptr<TrafficCounter> counts_ = std::make_shared<TrafficCounter>();
};

}  // namespace stp
