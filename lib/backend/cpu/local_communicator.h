// Groups of ranks that are threads of one process: members meet in shared memory.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "stp/backend/communicator.h"
#include "stp/backend/traffic_counter.h"
#include "stp/cpu/local_call.h"

namespace stp {

/// What the members of a group share: the calls that not all parties have come to yet.
class LocalGroup {
 public:
  LocalGroup(std::string name, std::vector<int> members)
      : name_(std::move(name)), members_(std::move(members)) {}

  [[nodiscard]] int size() const { return static_cast<int>(members_.size()); }
  /// The `number`-th collective, or, with `from` and `to` ≥ 0, transfer between two members.
  std::shared_ptr<LocalCall> call(int from, int to, int64_t number);
  /// All parties have come to it.
  void forget(int from, int to, int64_t number);

 private:
  const std::string name_;
  const std::vector<int> members_;
  std::mutex mutex_;
  std::map<std::tuple<int, int, int64_t>, std::shared_ptr<LocalCall>> calls_;
};

class LocalCommunicator : public Communicator {
 public:
  LocalCommunicator(std::shared_ptr<LocalGroup> group, int index) : group_(std::move(group)), index_(index) {}

  [[nodiscard]] int size() const override { return group_->size(); }
  [[nodiscard]] int index() const override { return index_; }
  void all_reduce(Stream& stream, Reduce reduce, const Tensor& tensor) override;
  void all_gather(Stream& stream, const Tensor& in, const Tensor& out) override;
  void reduce_scatter(Stream& stream, const Tensor& in, const Tensor& out) override;
  void send(Stream& stream, const Tensor& tensor, int to) override;
  void receive(Stream& stream, const Tensor& tensor, int from) override;
  [[nodiscard]] Traffic traffic() const override;

 private:
  void enqueue(Stream& stream, CallPart part, int from, int to);

  std::shared_ptr<LocalGroup> group_;
  const int index_;
  std::map<std::pair<int, int>, int64_t> next_;  // by from and to; collectives: −1, −1
  // Counted by tasks, as calls are carried out; what a task needs outlives the communicator's own end.
  std::shared_ptr<TrafficCounter> counts_ = std::make_shared<TrafficCounter>();
};

}  // namespace stp
