// Collectives and point-to-point transfers among the ranks of a group.
#pragma once

#include <cstdint>

#include "stp/device/device.h"

namespace stp {

enum class Reduce { sum, maximum };
/// What a group is for, so that no more is set up than that needs: sums and gathers of all members, transfers
/// from its first member to its second, or both.
enum class GroupUse : uint8_t { any, collectives, transfers };
enum class CallKind : uint8_t { all_reduce, all_gather, reduce_scatter, send, receive };

/// What one rank sent, by kind of call: payload bytes as given to the call, not what rings move.
struct Traffic {
  int64_t all_reduce_bytes = 0, all_gather_bytes = 0, reduce_scatter_bytes = 0, sent_bytes = 0;
  int64_t calls = 0;
};

/// One rank's end of a group. Members give the same calls in the same order; each call is work of the stream
/// it is given. The n-th send from a to b meets the n-th receive of b from a; a send is done when its receive
/// is.
class Communicator {
 public:
  virtual ~Communicator() = default;
  [[nodiscard]] virtual int size() const = 0;
  [[nodiscard]] virtual int index() const = 0;

  /// In place. All members end with the same bits. Sums of bf16 may be rounded once or, as NCCL does, after
  /// each addition.
  virtual void all_reduce(Stream& stream, Reduce reduce, const Tensor& tensor) = 0;
  /// `out` holds the members' `in`, one below the other.
  virtual void all_gather(Stream& stream, const Tensor& in, const Tensor& out) = 0;
  /// `out` is this member's piece (rows divided evenly) of the sum of all `in`.
  virtual void reduce_scatter(Stream& stream, const Tensor& in, const Tensor& out) = 0;
  virtual void send(Stream& stream, const Tensor& tensor, int to) = 0;
  virtual void receive(Stream& stream, const Tensor& tensor, int from) = 0;

  /// After the device was synchronised.
  [[nodiscard]] virtual Traffic traffic() const = 0;
};

}  // namespace stp
