#include "stp/cost/saved_memory.h"

#include <algorithm>
#include <array>

namespace stp {
namespace {

// What one pass of one unit makes and frees, bytes.
struct Change {
  double made = 0, freed = 0;
};

using Changes = std::array<Change, kUnitPasses.size()>;

Changes changes_of(const std::vector<SavedTensor>& tensors) {
  Changes changes{};
  const auto at = [&](UnitPass pass) -> Change& { return changes[static_cast<size_t>(pass)]; };
  for (const SavedTensor& tensor : tensors) {
    at(tensor.made_by_forward ? UnitPass::F : UnitPass::I).made += tensor.bytes;
    at(!tensor.weight_gradient ? UnitPass::I
       : tensor.early          ? UnitPass::W_early
                               : UnitPass::W_late)
        .freed += tensor.bytes;
  }
  return changes;
}

}  // namespace

std::vector<double> peak_saved_bytes(const Program& program, const ModelConfig& model, const Shape& shape,
                                     Implementation implementation) {
  std::array<Changes, kUnits.size()> changes;
  for (const Unit unit : kUnits)
    changes[static_cast<size_t>(unit)] = changes_of(saved_tensors(model, shape, implementation, unit));
  std::vector<double> peaks;
  for (int rank = 0; rank < program.schedule.pp(); ++rank) {
    double held = 0, peak = 0;
    for (OpId id = program.rank_begin[rank]; id < program.rank_begin[rank + 1]; ++id) {
      const Op& op = program.ops[id];
      const Changes& unit = changes[static_cast<size_t>(op.unit)];
      const auto at = [&](UnitPass pass) { return unit[static_cast<size_t>(pass)]; };
      Change change;
      if (op.kind == OpKind::compute) change = at(op.unit_pass);
      if (op.kind == OpKind::weight_gradients)
        change = {0, at(UnitPass::W_early).freed + at(UnitPass::W_late).freed};
      held += change.made;
      peak = std::max(peak, held);
      held -= change.freed;
    }
    peaks.push_back(peak);
  }
  return peaks;
}

}  // namespace stp
