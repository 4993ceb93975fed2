// Collectives and transfers among the ranks of a group. A process makes each call once, for all members that
// it drives. All processes make the calls of a group in the same order.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "stp/device/stream.h"
#include "stp/device/tensor.h"

namespace stp {

enum class Reduce : uint8_t { sum, maximum };
enum class CallKind : uint8_t { all_reduce, all_gather, reduce_scatter, all_to_all, transfer };
/// "all-reduce", …
std::string to_string(CallKind kind);

/// The use of a group, which decides what is set up: collectives of all members, or transfers from one member
/// to the next.
enum class GroupUse : uint8_t { collectives, transfers };

/// One member's part in a call: its stream and its tensors. For an all-reduce `out` is `in`. On a link the
/// sender has no `out` and the receiver no `in`.
struct Part {
  Stream* stream = nullptr;
  Tensor in, out;
  /// For an all-to-all: the rows of `in` that go to each member, and the rows of `out` from each. Empty:
  /// equal numbers.
  std::vector<int64_t> sent_rows = {}, received_rows = {};

  /// For an all-to-all of `size` members: the block of `in` for one member; the block of `out` from it.
  [[nodiscard]] Tensor sent_to(int member, int size) const;
  [[nodiscard]] Tensor received_from(int member, int size) const;
};

/// One call of a group, with the parts of the local members in their order.
struct Call {
  CallKind kind;
  Reduce reduce = Reduce::sum;
  std::span<const Part> parts;

  /// Bytes of the call as nccl-tests count them: of the tensor (all-reduce, transfer), the output
  /// (all-gather), the input (reduce-scatter), or the longer of the two (all-to-all).
  [[nodiscard]] int64_t bytes() const;
  /// "all-reduce (sum) of 4 x 8 f32"
  [[nodiscard]] std::string text() const;
};

/// Bytes that one member sent, by kind of call: the call's payload, not the bytes that ring algorithms move.
struct Traffic {
  int64_t all_reduce_bytes = 0, all_gather_bytes = 0, reduce_scatter_bytes = 0, sent_bytes = 0;
  int64_t exchanged_bytes = 0;  // part of sent_bytes: in its rings, or in all-to-alls
  int64_t calls = 0;
};

/// Indices of the `members` that are in `ranks`, for Group's constructor.
std::vector<int> local_members(const std::vector<int>& members, const std::vector<int>& ranks);

class Group {
 public:
  /// `members`: world ranks. `local`: ascending indices of the members that this process drives, at least
  /// one.
  Group(std::string name, std::vector<int> members, std::vector<int> local);
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;
  virtual ~Group() = default;

  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] int size() const { return static_cast<int>(members_.size()); }
  [[nodiscard]] const std::vector<int>& members() const { return members_; }
  [[nodiscard]] const std::vector<int>& local() const { return local_; }

  // The calls throw std::logic_error that names the call if parts do not fit together. In a group of one, an
  // all-reduce does nothing; a gather or scatter copies.

  /// Reduces in place. All members end with the same bits. Sums of bf16 may be rounded once or, as in NCCL,
  /// after each addition.
  void all_reduce(Reduce reduce, std::span<const Part> parts);
  /// `out` is the concatenation of the members' `in` by rows.
  void all_gather(std::span<const Part> parts);
  /// `out` is this member's piece (rows divided evenly) of the sum of all `in`.
  void reduce_scatter(std::span<const Part> parts);
  /// `in` has a block of rows for each member, in their order, and `out` a block from each, also for the
  /// member itself. All tensors have one type and width. Blocks may differ in rows, or be empty.
  void all_to_all(std::span<const Part> parts);
  /// A link has two members: the `in` of the first becomes the `out` of the second. In a ring, each member's
  /// `in` becomes the `out` of the next, all at once; the first follows the last.
  void transfer(std::span<const Part> parts);
  /// Makes a call of any kind.
  void give(const Call& call);

  /// Traffic of a local member, by its index in local().
  [[nodiscard]] const Traffic& traffic(int local) const { return traffic_[local]; }

 protected:
  /// Called with parts that fit together. Gives the work to the parts' streams and returns.
  virtual void carry_out(const Call& call) = 0;

 private:
  void check(const Call& call) const;
  /// Whether blocks fill their tensors, and a local member receives what another local member sends it.
  [[nodiscard]] bool blocks_fit(std::span<const Part> parts) const;

  const std::string name_;
  const std::vector<int> members_, local_;
  std::vector<Traffic> traffic_;  // by local member
};

}  // namespace stp
