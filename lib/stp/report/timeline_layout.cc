#include "stp/report/timeline_layout.h"

#include <algorithm>

namespace stp {
namespace {

constexpr int kMostRanks = 64;

// Pixels.
constexpr double kWidest = 2000;     // of the plot, up to 10 ranks; a longer step is cut
constexpr double kLeastPage = 960;   // leaves room for the legend
constexpr double kBreak = 36;        // between the two parts of a step that was cut
constexpr double kLeastPiece = 1.2;  // below, the pieces of a braid cannot be told apart

// The mean time of an action's compute: of a forward, and of the others.
struct ActionTimes {
  double forward = 0, other = 0;
};
ActionTimes action_times(const Program& program, const Timeline& timeline, int ranks) {
  ActionTimes sum, count;
  for (OpId id = 0; id < program.rank_begin[ranks]; ++id) {
    const Op& op = program.ops[id];
    if (op.kind != OpKind::compute && op.kind != OpKind::weight_gradients) continue;
    (op.pass == Pass::F ? sum.forward : sum.other) += timeline.end[id] - timeline.start[id];
  }
  for (int rank = 0; rank < ranks; ++rank)
    for (const Block& block : program.schedule.ranks[rank])
      for (const Action& action : block.actions()) ++(action.pass == Pass::F ? count.forward : count.other);
  return {sum.forward / std::max(count.forward, 1.0), sum.other / std::max(count.other, 1.0)};
}

}  // namespace

TimelineLayout lay_out(const Program& program, const Timeline& timeline, double share) {
  TimelineLayout layout{};
  layout.ranks = std::min(program.schedule.pp(), kMostRanks);
  for (OpId op = 0; op < program.rank_begin[layout.ranks]; ++op) {
    if (!(timeline.end[op] > timeline.start[op])) continue;
    if (is_collective(program.ops[op].kind)) layout.all_reduces = true;
    if (program.ops[op].kind == OpKind::optimizer) layout.optimizer = true;
  }
  const bool many = layout.many();
  layout.tall = many ? 14 : 22;
  layout.thin = !layout.all_reduces ? 0 : many ? 4 : 6;
  layout.row = layout.tall + layout.thin + (many ? 5 : 11);

  // A forward is as wide as its microbatch's number needs, wider where its pieces would be too narrow to see;
  // but forwards that take next to no time do not stretch the others beyond all bounds.
  int pieces = 1;
  for (const int layers : program.layers_per_stage) pieces = std::max(pieces, 2 * layers);
  const ActionTimes times = action_times(program, timeline, layout.ranks);
  const double forward = std::max(times.forward, times.other / 4);
  const double forward_px = many ? 8.0 : std::clamp(3.0 * pieces, 18.0, 48.0);
  const double step = timeline.step_s;
  double length = forward > 0 ? forward_px * step / forward : kWidest;
  length = std::max(length, std::min(3 * length, kLeastPage - layout.kLeft - layout.kRight));

  // A step that does not fit is squeezed a little or else cut in the middle, since beginning and end tell
  // schedules apart. More ranks take longer to fill and to drain.
  const double widest = kWidest * std::clamp(layout.ranks / 10.0, 1.0, 2.0) * share;
  if (0.75 * length <= widest) length = std::min(length, widest);
  layout.scale = step > 0 ? length / step : 1;
  if (length <= widest) {
    layout.windows = {{0, step, layout.kLeft}};
  } else {
    const double half = (widest - kBreak) / 2 / layout.scale;
    layout.windows = {{0, half, layout.kLeft},
                      {step - half, step, layout.kLeft + half * layout.scale + kBreak}};
  }
  layout.page = std::max(kLeastPage, layout.x(layout.windows.back(), step) + layout.kRight);

  layout.piece = forward * layout.scale / pieces;
  layout.halves = forward > 0 && layout.piece < kLeastPiece;
  layout.joined = layout.halves ? 0.5 / layout.scale : 1e-9 * step;
  return layout;
}

}  // namespace stp
