// The ops of one segment: its compute, whole or in parts, the exchanges between the parts' steps, and the
// collective behind it. Private to this module.
#pragma once

#include <functional>

#include "stp/program/builder.h"
#include "stp/program/lower.h"

namespace stp {

/// The largest number of ops that a segment becomes, without offloading.
size_t ops_of(const Segment& segment, const Strategy& strategy);

/// An action's segment.
struct SegmentOf {
  const Action& action;
  const Segment& segment;
};

class UnitOps {
 public:
  UnitOps(const Lowering& lowering, ProgramBuilder& builder) : strategy_(lowering.strategy), b_(builder) {}

  /// Whether collectives stand between the steps of the segment's parts.
  [[nodiscard]] bool overlaps(const Segment& segment) const;

  /// Writes one op. Call these functions after begin_op() and depend(), unless they say otherwise.
  OpId add(SegmentOf of, OpKind kind, UnitPass pass, uint32_t stream, ValueId input = kNoValue,
           ValueId output = kNoValue);
  OpId add_compute(SegmentOf of, OpKind kind, UnitPass pass, ValueId input = kNoValue,
                   ValueId output = kNoValue);
  /// Writes the compute of F or I, from value `from` to value `to`. In parts, the caller sums the last piece
  /// of the output. If an exchange of rows comes first, `begin` begins the compute op after it.
  OpId add_pass(SegmentOf of, ValueId from, ValueId to, const std::function<void()>& begin);
  /// Writes the segment's last collective, which sums `value`. Calls begin_op() itself.
  OpId add_last_reduction(SegmentOf of, ValueId value) {
    return add_reduction(of, value, pieces(of.segment) - 1);
  }

 private:
  struct Part {
    UnitPart part;
    UnitPass pass;
    int step = 0;
  };
  [[nodiscard]] int pieces(const Segment& segment) const;
  OpId add_reduction(SegmentOf of, ValueId value, int piece);
  void add_ring(SegmentOf of, ValueId from, const std::function<void()>& begin);
  Ref add_core(SegmentOf of, UnitPass pass);
  Ref add_core_of_heads(SegmentOf of, UnitPass pass);
  OpId add_part(SegmentOf of, const Part& part, ValueId input = kNoValue, ValueId output = kNoValue);
  OpId add_exchange(SegmentOf of, OpKind kind, UnitPass pass, int step);
  void set_part(OpId op, UnitPart part, int step);

  const Strategy strategy_;
  ProgramBuilder& b_;
};

}  // namespace stp
