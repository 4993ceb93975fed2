// The ops of one segment: its compute, whole or in parts, the exchanges between the parts' steps, and the
// collective behind it. Private to this module.
#pragma once

#include <array>
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
  UnitOps(const Lowering& lowering, ProgramBuilder& builder) : strategy_(lowering.strategy), b_(builder) {
    for (const Unit unit : kUnits) divided_[static_cast<size_t>(unit)] = strategy_.divides(unit);
  }

  /// Whether the segment's compute is in parts.
  [[nodiscard]] bool in_parts(const Segment& segment) const {
    return segment.main != Segment::Main::weight_gradients && divided_[static_cast<size_t>(segment.unit)];
  }
  /// Whether collectives stand between the steps of its parts.
  [[nodiscard]] bool overlaps(const Segment& segment) const {
    return strategy_.overlaps() && in_parts(segment);
  }

  /// Writes one op. Call these functions after begin_op() and depend(), unless they say otherwise.
  OpId add(SegmentOf of, OpKind kind, UnitPass pass, uint32_t stream, ValueId input = kNoValue,
           ValueId output = kNoValue) {
    return b_.add({.kind = kind,
                   .unit = of.segment.unit,
                   .unit_pass = pass,
                   .pass = of.action.pass,
                   .chunk = of.action.chunk,
                   .layer = of.segment.layer,
                   .microbatch = of.action.microbatch,
                   .block = b_.block,
                   .input = input,
                   .output = output},
                  stream);
  }
  OpId add_compute(SegmentOf of, OpKind kind, UnitPass pass, ValueId input = kNoValue,
                   ValueId output = kNoValue) {
    return b_.latest.compute = add(of, kind, pass, b_.compute_stream(), input, output);
  }
  /// Writes the compute of F or I in parts, from value `from` to value `to`; the caller sums the last piece
  /// of the output. If an exchange of rows comes first, `begin` begins the compute op after it.
  OpId add_parts(SegmentOf of, ValueId from, ValueId to, const std::function<void()>& begin);
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
  // The number of pieces in which the output is summed.
  [[nodiscard]] int pieces(const Segment& segment) const {
    return in_parts(segment) ? strategy_.steps(segment.unit, pass_of(segment), UnitPart::after) : 1;
  }
  OpId add_reduction(SegmentOf of, ValueId value, int piece);
  void add_ring(SegmentOf of, ValueId from, const std::function<void()>& begin);
  Ref add_core(SegmentOf of, UnitPass pass);
  OpId add_part(SegmentOf of, const Part& part, ValueId input = kNoValue, ValueId output = kNoValue);
  OpId add_exchange(SegmentOf of, Exchange what, UnitPass pass, int number, ValueId input = kNoValue);
  void set_part(OpId op, UnitPart part, int step);

  const Strategy strategy_;
  std::array<bool, kUnits.size()> divided_{};  // by strategy_
  ProgramBuilder& b_;
};

}  // namespace stp
