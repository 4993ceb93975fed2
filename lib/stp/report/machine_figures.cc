#include "stp/report/machine_figures.h"

namespace stp {

OverlapFigures simulated_overlap(double compute_s, double all_reduce_s, const Contention& contention) {
  Program program{.schedule = {"overlap", Placement::loop(1, 1), 1, {{}}}};
  program.streams = {{StreamKind::compute, 0, -1}, {StreamKind::tp, 0, -1}};
  program.ops = {{.kind = OpKind::compute, .block = -1}, {.kind = OpKind::all_reduce, .block = -1}};
  program.on_stream = {0, 1};
  program.rank_begin = {0, 2};
  program.depends_begin = {0, 0, 0};
  const double seconds[] = {compute_s, all_reduce_s};
  const Timeline timeline = simulate(program, seconds, contention);
  return overlap_figures({compute_s, all_reduce_s, timeline.end[0], timeline.end[1]});
}

}  // namespace stp
