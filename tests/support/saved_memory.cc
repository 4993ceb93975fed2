#include "support/saved_memory.h"

#include <algorithm>
#include <vector>

#include "stp/model/offload.h"

namespace stp {
namespace {

// Bytes of one unit's saved tensors that an op makes and frees.
struct Change {
  double made = 0, freed = 0;
};

// When one unit's tensors are made and freed. With sequence parallelism the norm's tensors are made by the
// all-gather of its output, or before the exchanges in place of it, and freed by the reduce-scatter of the
// gradient. Where exchanges take the place of I's all-gather, the first makes the output's gradient, before
// the compute op that frees what was offloaded.
class SavedBytes {
 public:
  SavedBytes(const Program& program, Unit unit, const std::vector<SavedTensor>& tensors)
      : sequence_parallel_(program.strategy.sequence_parallel),
        overlaps_(program.strategy.overlaps()),
        recompute_(program.strategy.recompute),
        full_(recompute_.layer && (unit == Unit::attn || unit == Unit::mlp)) {
    for (const SavedTensor& tensor : tensors) {
      if (tensor.which == Saved::output_gradient) output_gradient_ = tensor.bytes;
      // With full recomputation only a layer's input stays from the first forward on.
      if (full_ && unit == Unit::attn && tensor.norm && !tensor.weight_gradient && input_ == 0)
        input_ = tensor.bytes;
      double& made = !tensor.made_by_forward ? made_by_I_ : tensor.norm ? norm_ : made_by_F_;
      made += tensor.bytes;
      double& freed = tensor.weight_gradient ? (tensor.early ? freed_early_ : freed_late_)
                      : tensor.norm          ? norm_freed_
                                             : freed_by_I_;
      freed += tensor.bytes;
    }
  }

  [[nodiscard]] Change by(const Op& op) const {
    switch (op.kind) {
      case OpKind::all_gather:
        return op.unit_pass == UnitPass::F ? Change{forward(op, 0, norm_)} : Change{};
      case OpKind::reduce_scatter:
        return op.unit_pass == UnitPass::I ? Change{0, norm_freed_} : Change{};
      case OpKind::weight_gradients:  // U's norm waits for it
        return {0, freed_early_ + freed_late_ + (op.pass == Pass::U ? norm_freed_ : 0)};
      case OpKind::exchange:
        return {begins_ring(op) ? output_gradient_ : 0};
      case OpKind::compute:
        break;
      default:
        return {};
    }
    // In parts, a unit's tensors are made before and during its core, and none is freed before all are.
    if (op.part == UnitPart::norm) return {forward(op, 0, norm_)};
    if (op.part == UnitPart::core || op.step > 0) return {};
    Change change = by_compute(op);
    if (op.part == UnitPart::before) change.freed = 0;
    if (op.part == UnitPart::after) change.made = 0;
    return change;
  }

 private:
  static bool begins_ring(const Op& op) {
    return op.exchange == Exchange::rows && op.unit_pass == UnitPass::I && op.step == 1;
  }

  [[nodiscard]] Change by_compute(const Op& op) const {
    switch (op.unit_pass) {
      case UnitPass::F:
        return {forward(op, input_, made_by_F_ + (sequence_parallel_ ? 0 : norm_))};
      case UnitPass::I: {
        // The head's own collectives are inside it, its norm's backward too.
        const bool norm = (!sequence_parallel_ || op.unit == Unit::head) && op.pass != Pass::S;
        const bool ring = overlaps_ && op.part != UnitPart::whole;
        return {made_by_I_ - (ring ? output_gradient_ : 0), freed_by_I_ + (norm ? norm_freed_ : 0)};
      }
      case UnitPass::W_early:
        return {0, freed_early_};
      case UnitPass::W_late:
        return {0, freed_late_};
    }
    return {};
  }

  // What a forward makes: only `kept` if it is recomputed; the recomputation then makes the rest of `all`.
  // With sequence parallelism the layer's input, which is kept, is among what the all-gather makes.
  [[nodiscard]] double forward(const Op& op, double kept, double all) const {
    if (!full_ || !recompute_.whole(op.layer)) return all;
    if (!op.recomputed()) return kept;
    const bool of_norm = op.kind == OpKind::all_gather || op.part == UnitPart::norm || !sequence_parallel_;
    return all - (of_norm ? input_ : 0);
  }

  const bool sequence_parallel_, overlaps_;
  const Recompute recompute_;
  const bool full_;
  double input_ = 0, norm_ = 0, norm_freed_ = 0, made_by_F_ = 0, made_by_I_ = 0;
  double output_gradient_ = 0, freed_by_I_ = 0, freed_early_ = 0, freed_late_ = 0;
};

}  // namespace

std::vector<double> peak_saved_bytes(const Program& program, const ModelConfig& model, const Shape& shape,
                                     Implementation implementation) {
  // Behind a vision encoder, the gradient of the embedding's output: from the encoder's first op of I to W.
  double for_embedding = 0;
  for (const SavedTensor& tensor : saved_tensors(model, shape, implementation, Unit::embedding))
    for_embedding += tensor.bytes;
  const auto change_for_embedding = [&](const Op& op) -> Change {
    if (op.pass == Pass::I && op.kind == OpKind::compute && op.unit == Unit::merger) return {for_embedding};
    if (op.pass == Pass::W && op.unit == Unit::embedding) return {0, for_embedding};
    return {};
  };
  std::vector<SavedBytes> units;  // by unit
  for (const Unit unit : kUnits)
    units.emplace_back(program, unit, saved_tensors(model, shape, implementation, unit));
  const auto copied = [&](OpId op) {
    return offloaded_bytes(model, shape, implementation, {program.layers_per_stage[program.stage_of(op)]},
                           program.strategy.offload)[0];
  };
  std::vector<double> peaks;
  for (int rank = 0; rank < program.schedule.pp(); ++rank) {
    double held = 0, peak = 0;
    for (OpId id = program.rank_begin[rank]; id < program.rank_begin[rank + 1]; ++id) {
      const Op& op = program.ops[id];
      for (const OpId needed : program.dependencies(id))
        if (program.frees(id, needed)) held -= copied(needed);
      if (op.kind == OpKind::reload) {
        held += copied(id);
        peak = std::max(peak, held);
      }
      if (op.kind != OpKind::compute && op.kind != OpKind::weight_gradients && op.kind != OpKind::exchange &&
          !is_collective(op.kind))
        continue;
      const Change change =
          op.unit == Unit::embedding ? Change{} : units[static_cast<size_t>(op.unit)].by(op);
      const Change also = change_for_embedding(op);
      held += change.made + also.made;
      peak = std::max(peak, held);
      held -= change.freed + also.freed;
    }
    peaks.push_back(peak);
  }
  return peaks;
}

}  // namespace stp
