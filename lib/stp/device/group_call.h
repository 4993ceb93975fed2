// One call of a group: what each party brings to it, and whether that fits together. For communicators whose
// parties meet within a process, whatever their devices.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "stp/device/communicator.h"
#include "stp/device/run_context.h"

namespace stp {

/// What one party brings to a call.
struct CallPart {
  CallKind kind = CallKind::all_reduce;
  Reduce reduce = Reduce::sum;
  Tensor in, out;  // the same for an all-reduce; a sender has no `out`, a receiver no `in`

  /// "all-reduce (sum) of 4 x 8 f32"
  [[nodiscard]] std::string text() const;
  /// Of what is given to the call to send.
  [[nodiscard]] int64_t sent_bytes() const { return in ? static_cast<int64_t>(in.bytes()) : 0; }
};

/// A part, and where it comes from.
struct CallParty {
  int rank = 0;
  CallPart part = {};
  std::string stream = {};
  std::optional<uint32_t> op = {};
};

/// Throws std::runtime_error that names the call and two parties whose parts do not fit together, or one
/// whose input and output do not. Of a transfer, the sender is the first party.
void check_parts_fit(const std::string& name, const RunContext& run,
                     const std::vector<const CallParty*>& parties);

/// Which call of a group: the `number`-th collective or, with `from` and `to` ≥ 0, transfer between two
/// members.
struct CallId {
  int from = -1, to = -1;
  int64_t number = 0;

  [[nodiscard]] bool transfer() const { return from >= 0; }
  [[nodiscard]] auto key() const { return std::make_tuple(from, to, number); }
};

/// What the members of a group share: the calls that not all parties have come to yet. `Call` is made of its
/// name, which says group and call, and the world ranks of its parties. Threads may call it at once.
template <typename Call>
class GroupCalls {
 public:
  GroupCalls(std::string name, std::vector<int> members)
      : name_(std::move(name)), members_(std::move(members)) {}

  [[nodiscard]] int size() const { return static_cast<int>(members_.size()); }

  std::shared_ptr<Call> call(const CallId& id) {
    const std::lock_guard lock(mutex_);
    auto& call = calls_[id.key()];
    if (!call) {
      std::string what = id.transfer() ? "transfer " + std::to_string(members_[id.from]) + " to " +
                                             std::to_string(members_[id.to])
                                       : "call";
      what += " " + std::to_string(id.number) + " of group " + name_;
      call = std::make_shared<Call>(
          what, id.transfer() ? std::vector<int>{members_[id.from], members_[id.to]} : members_);
    }
    return call;
  }
  /// All parties have come to it.
  void forget(const CallId& id) {
    const std::lock_guard lock(mutex_);
    calls_.erase(id.key());
  }

 private:
  const std::string name_;
  const std::vector<int> members_;
  std::mutex mutex_;
  std::map<std::tuple<int, int, int64_t>, std::shared_ptr<Call>> calls_;
};

/// All groups of a backend, by name and members. Threads may call it at once.
template <typename Call>
class Groups {
 public:
  /// Throws std::logic_error if it has no member of that index.
  std::shared_ptr<GroupCalls<Call>> of(const std::string& name, const std::vector<int>& members, int index) {
    if (index < 0 || index >= static_cast<int>(members.size()))
      throw std::logic_error("group " + name + " has no member " + std::to_string(index));
    const std::lock_guard lock(mutex_);
    auto& group = groups_[{name, members}];
    if (!group) group = std::make_shared<GroupCalls<Call>>(name, members);
    return group;
  }

 private:
  std::mutex mutex_;
  std::map<std::pair<std::string, std::vector<int>>, std::shared_ptr<GroupCalls<Call>>> groups_;
};

}  // namespace stp
