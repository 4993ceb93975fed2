// Collectives and transfers among the ranks of a group. A process makes a call once, for all members that it
// drives; all processes make the calls of a group in the same order.
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

/// What a group is used for, so that only that is set up: collectives of all members, or transfers from one
/// to the next.
enum class GroupUse : uint8_t { collectives, transfers };

/// One member's part in a call: the stream on which it runs, and its tensors. For an all-reduce `out` is
/// `in`; of a link, the sender has no `out`, the receiver no `in`.
struct Part {
  Stream* stream = nullptr;
  Tensor in, out;
  /// Of an all-to-all: how many rows of `in` go to each member, and of `out` come from each. Empty: as many
  /// of all.
  std::vector<int64_t> sent_rows = {}, received_rows = {};

  /// Of an all-to-all of `size` members, the block of `in` for one of them, or of `out` from it.
  [[nodiscard]] Tensor sent_to(int member, int size) const;
  [[nodiscard]] Tensor received_from(int member, int size) const;
};

/// One call of a group. Parts are those of the local members, in their order.
struct Call {
  CallKind kind;
  Reduce reduce = Reduce::sum;
  std::span<const Part> parts;

  /// Bytes of the call as nccl-tests count them: those of the tensor (all-reduce, transfer), of the output
  /// (all-gather) or of the input (reduce-scatter); of an all-to-all those of the longer of the two.
  [[nodiscard]] int64_t bytes() const;
  /// "all-reduce (sum) of 4 x 8 f32"
  [[nodiscard]] std::string text() const;
};

/// Bytes that one member sent, by kind of call: the call's payload, not what ring algorithms move.
struct Traffic {
  int64_t all_reduce_bytes = 0, all_gather_bytes = 0, reduce_scatter_bytes = 0, sent_bytes = 0;
  int64_t exchanged_bytes = 0;  // of a rank's sent ones: to the next rank of its rings, or in all-to-alls
  int64_t calls = 0;
};

class Group {
 public:
  /// `members`: world ranks; `local`: indices of the members that this process drives: at least one,
  /// ascending.
  Group(std::string name, std::vector<int> members, std::vector<int> local);
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;
  virtual ~Group() = default;

  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] int size() const { return static_cast<int>(members_.size()); }
  [[nodiscard]] const std::vector<int>& members() const { return members_; }
  [[nodiscard]] const std::vector<int>& local() const { return local_; }

  // Throw std::logic_error that names the call if parts do not fit together. In a group of one, an all-reduce
  // does nothing; a gather or scatter copies.

  /// In place. All members end with the same bits. Sums of bf16 may be rounded once or, as NCCL does, after
  /// each addition.
  void all_reduce(Reduce reduce, std::span<const Part> parts);
  /// `out` is the concatenation of the members' `in` by rows.
  void all_gather(std::span<const Part> parts);
  /// `out` is this member's piece (rows divided evenly) of the sum of all `in`.
  void reduce_scatter(std::span<const Part> parts);
  /// Each member's `in` is a block of rows for each member, in their order, and its `out` one from each; the
  /// own block too. All of one type and width; blocks may differ in rows, also none.
  void all_to_all(std::span<const Part> parts);
  /// A link: of two members, the `in` of the first becomes the `out` of the second. Or a ring: each member's
  /// `in` becomes the `out` of the next, all at once; the first is next to the last.
  void transfer(std::span<const Part> parts);

  /// Traffic of a local member, by its index in local().
  [[nodiscard]] const Traffic& traffic(int local) const { return traffic_[local]; }

 protected:
  /// Called with parts that fit together. Gives the work to the parts' streams and returns.
  virtual void carry_out(const Call& call) = 0;

 private:
  void check(const Call& call) const;
  /// Whether blocks fill their tensors, and what a local member sends another is what that one receives.
  [[nodiscard]] bool blocks_fit(std::span<const Part> parts) const;
  void give(const Call& call);

  const std::string name_;
  const std::vector<int> members_, local_;
  std::vector<Traffic> traffic_;  // by local member
};

}  // namespace stp
