#include "stp/runtime/gemm_calls.h"

#include <algorithm>
#include <set>
#include <tuple>

namespace stp {
namespace {

TensorView sizes(double rows, double columns, DType type) {
  TensorView view;
  view.rows = static_cast<int64_t>(rows);
  view.columns = static_cast<int64_t>(columns);
  view.type = type;
  view.empty = false;
  return view;
}

Work work_of(const Op& op, UnitPass pass, const ModelConfig& model, const Shape& shape) {
  if (op.part == UnitPart::whole) return work(model, shape, Implementation::suite, op.unit, pass);
  return unit_part_work(model, shape, Implementation::suite, op.unit, pass, op.part, op.step);
}

}  // namespace

kernel::Gemm gemm_call(const Gemm& gemm, DType type) {
  const bool transpose_a = gemm.kind == GemmKind::weight_gradient,
             transpose_b = gemm.kind == GemmKind::forward;
  return {.transpose_a = transpose_a,
          .transpose_b = transpose_b,
          .a = transpose_a ? sizes(gemm.k, gemm.m, type) : sizes(gemm.m, gemm.k, type),
          .b = transpose_b ? sizes(gemm.n, gemm.k, type) : sizes(gemm.k, gemm.n, type),
          .beta = transpose_a ? 1.0 : 0.0,
          .c = sizes(gemm.m, gemm.n, transpose_a ? statistics_type(type) : type)};
}

std::vector<UnitGemm> gemms_of_rank(const Program& program, int rank, const ModelConfig& model,
                                    const Shape& shape) {
  std::vector<UnitGemm> all;
  std::set<std::tuple<Unit, UnitPass, UnitPart, int>> seen;
  for (OpId id = program.rank_begin[rank]; id < program.rank_begin[rank + 1]; ++id) {
    const Op& op = program.ops[id];
    const bool both = op.kind == OpKind::weight_gradients;
    if (op.kind != OpKind::compute && !both) continue;
    std::vector<UnitPass> passes{op.unit_pass};
    if (both) passes.push_back(UnitPass::W_early);
    for (const UnitPass pass : passes) {
      if (!has_pass(op.unit, pass) || !seen.insert({op.unit, pass, op.part, op.step}).second) continue;
      for (const Gemm& gemm : work_of(op, pass, model, shape).gemms)
        if (std::ranges::find(all, gemm, &UnitGemm::gemm) == all.end())
          all.push_back({to_string(op.unit, pass), gemm});
    }
  }
  return all;
}

}  // namespace stp
