#include "stp/report/machine_figures.h"

#include "stp/cost/gemm.h"

namespace stp {

std::vector<GemmFigure> gemm_figures(const HardwareProfile& profile, const ModelConfig& model,
                                     const Shape& shape, Implementation implementation) {
  std::vector<GemmFigure> figures;
  for (const Unit unit : {Unit::attn, Unit::mlp})
    for (const UnitPass pass : kUnitPasses)
      for (const Gemm& gemm : work(model, shape, implementation, unit, pass).gemms)
        figures.push_back({unit, pass, gemm, gemm_seconds(profile, gemm)});
  return figures;
}

double exposed_share(double compute_s, double all_reduce_s, const Contention& contention) {
  // One rank with two ops that wait for nothing.
  Program program{
      .schedule = {"overlap", Placement::loop(1, 1), 1, {{}}}, .layers_per_stage = {1}, .depends_begin = {0}};
  for (const auto& [kind, stream] :
       {std::pair{OpKind::compute, StreamKind::compute}, {OpKind::all_reduce, StreamKind::tp}}) {
    program.streams.push_back({stream, 0, -1});
    program.ops.push_back({.kind = kind,
                           .unit = Unit::attn,
                           .unit_pass = UnitPass::F,
                           .pass = Pass::F,
                           .block = -1,
                           .stream = static_cast<uint32_t>(program.streams.size() - 1)});
    program.depends_begin.push_back(0);
  }
  program.rank_begin = {0, static_cast<OpId>(program.ops.size())};
  const std::vector<double> seconds = {compute_s, all_reduce_s};
  return (simulate(program, seconds, contention).step_s - compute_s) / all_reduce_s;
}

}  // namespace stp
