#include "stp/program/unit_ops.h"

#include <algorithm>
#include <utility>

#include "stp/model/components.h"

namespace stp {
namespace {

// Whether the segment's parts run F's core again.
bool core_again(const Segment& segment, const Recompute& recompute) {
  return segment.main == Segment::Main::input_gradient &&
         is_recomputed(recompute, segment.unit, ComponentKind::core);
}

}  // namespace

size_t ops_of(const Segment& segment, const Strategy& strategy) {
  const size_t weights = segment.weights == Segment::Weights::none          ? 0
                         : segment.weights == Segment::Weights::both_behind ? 1
                                                                            : 2;
  const size_t collectives = (strategy.sequence_parallel && segment.gathers) + segment.all_reduce;
  if (segment.main == Segment::Main::weight_gradients || !strategy.divides(segment.unit))
    return 1 + collectives + weights;
  const UnitPass pass = pass_of(segment);
  size_t ops = collectives;
  for (const UnitPart part : {UnitPart::norm, UnitPart::before, UnitPart::core, UnitPart::after})
    ops += strategy.steps(segment.unit, pass, part);
  ops += strategy.core_exchanges(segment.unit, pass).size();
  if (core_again(segment, strategy.recompute))
    ops += strategy.steps(segment.unit, UnitPass::F, UnitPart::core) +
           strategy.core_exchanges(segment.unit, UnitPass::F).size();
  // The last summand: exchanges of rows and sums of pieces.
  return ops + weights + (strategy.overlaps() ? strategy.tp - 1 + std::max(strategy.tp, kPipelineSteps) : 0);
}

// Adds the sum over the group of the last compute op's output: the chain's value or a piece of it.
OpId UnitOps::add_reduction(SegmentOf of, ValueId value, int piece) {
  b_.begin_op();
  b_.depend(b_.latest.compute);
  const UnitPass pass = pass_of(of.segment);
  // Nothing uses the output of a recomputed layer.
  const bool unused = of.segment.recomputed && ends_layer(of.segment.unit);
  const bool whole = pieces(of.segment) == 1, last = piece + 1 == pieces(of.segment);
  const OpId op = b_.latest.collective =
      add(of, strategy_.sequence_parallel ? OpKind::reduce_scatter : OpKind::all_reduce, pass, b_.tp_stream(),
          whole ? value : kNoValue, unused || !last ? kNoValue : value);
  if (!whole) set_part(op, UnitPart::after, piece);
  if (strategy_.sequence_parallel) b_.latest.scatter = op;
  return op;
}

// `after` waits for the core's last exchange.
OpId UnitOps::add_parts(SegmentOf of, ValueId from, ValueId to, const std::function<void()>& begin) {
  const UnitPass pass = pass_of(of.segment);
  if (overlaps(of.segment))
    add_ring(of, from, begin);
  else
    add_part(of, {UnitPart::before, pass}, from);
  if (core_again(of.segment, strategy_.recompute)) add_core(of, UnitPass::F);
  Ref home = add_core(of, pass);
  const int pieces = this->pieces(of.segment);
  for (int piece = 0;; ++piece) {
    b_.begin_op();
    b_.depend(std::exchange(home, kNothing));
    const OpId op = add_part(of, {UnitPart::after, pass, piece}, kNoValue, pieces == 1 ? to : kNoValue);
    if (piece + 1 == pieces) return op;
    add_reduction(of, to, piece);
  }
}

// Adds the part before the core, with an exchange of rows beside each step but the last. The first exchange
// sends this rank's rows: in F of the norm's output, in I of the chain's input.
void UnitOps::add_ring(SegmentOf of, ValueId from, const std::function<void()>& begin) {
  const UnitPass pass = pass_of(of.segment);
  Ref norm = kNothing, brought = kNothing;  // the next step waits for it
  if (pass == UnitPass::F) norm = add_part(of, {UnitPart::norm, pass}, from);
  const int steps = strategy_.steps(of.segment.unit, pass, UnitPart::before);
  for (int step = 0; step < steps; ++step) {
    const Ref needed = brought;
    const bool begins = step == 0 && pass == UnitPass::I;
    if (step + 1 < steps) {
      if (!begins) b_.begin_op();
      if (step == 0) b_.depend(norm);
      brought = add_exchange(of, Exchange::rows, pass, step + 1, begins ? from : kNoValue);
    }
    if (begins)
      begin();
    else
      b_.begin_op();
    b_.depend(needed);
    add_part(of, {UnitPart::before, pass, step});
  }
}

// Adds the core's steps and their exchanges, and returns what `after` waits for.
Ref UnitOps::add_core(SegmentOf of, UnitPass pass) {
  const bool again = pass != pass_of(of.segment);
  const int steps = strategy_.steps(of.segment.unit, pass, UnitPart::core);
  const std::vector<CoreExchange> exchanges = strategy_.core_exchanges(of.segment.unit, pass);
  std::vector<Ref> needed(steps + 1, kNothing);
  for (int step = 0;; ++step) {
    for (const CoreExchange& each : exchanges) {
      if (each.at != step || (again && !each.again)) continue;
      b_.begin_op();
      b_.depend(b_.latest.compute);
      const OpId op = add_exchange(of, each.what, pass, each.number);
      if (each.waiting >= 0) needed[each.waiting] = op;
    }
    if (step == steps) return needed[steps];
    b_.begin_op();
    b_.depend(needed[step]);
    add_part(of, {UnitPart::core, pass, step});
  }
}

OpId UnitOps::add_part(SegmentOf of, const Part& part, ValueId input, ValueId output) {
  const OpId op = add_compute(of, OpKind::compute, part.pass, input, output);
  set_part(op, part.part, part.step);
  return op;
}

OpId UnitOps::add_exchange(SegmentOf of, Exchange what, UnitPass pass, int number, ValueId input) {
  const uint32_t stream = rule_of(what).axes.tp ? b_.tp_stream() : b_.stream(StreamKind::cp);
  const OpId op = add(of, OpKind::exchange, pass, stream, input);
  set_part(op, UnitPart::whole, number);
  b_.program.ops[op].exchange = what;
  return op;
}

void UnitOps::set_part(OpId op, UnitPart part, int step) {
  b_.program.ops[op].part = part;
  b_.program.ops[op].step = static_cast<int16_t>(step);
}

}  // namespace stp
