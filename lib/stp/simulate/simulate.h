// The discrete-event engine: replays a Program in virtual time. It knows ops, streams and seconds, nothing
// else.
#pragma once

#include <span>
#include <vector>

#include "stp/program/program.h"

namespace stp {

/// What share of its speed alone a compute op and an all-reduce of the same rank keep while they overlap.
struct Contention {
  double compute = 1;
  double all_reduce = 1;
};

/// Processors that the ops of all ranks share, as the cores of a CPU.
struct Processors {
  /// Speed of each by how many are busy ([0]: one), as a share of one alone; more workers than processors
  /// take turns. Empty: every stream has its own.
  std::vector<double> rates;
  /// How many workers an op keeps busy: the ranks that one rank of the Program stands for.
  int per_op = 1;
};

/// How one rank's compute stream spent the step (docs/metrics.md).
struct RankTime {
  double compute_s = 0;    // its ops' time, with what contention adds
  double pp_bubble_s = 0;  // idle for another rank, at the end too
  double tp_bubble_s = 0;  // idle for its own all-reduce
};

struct Timeline {
  std::vector<double> start, end;  // seconds, by op
  std::vector<bool> known;         // by op, where only some were timed; empty: all
  double step_s = 0;               // the end of the last op on any stream
  std::vector<RankTime> ranks;     // compute + pp_bubble + tp_bubble = step_s

  [[nodiscard]] bool has(OpId op) const { return known.empty() || known[op]; }
};

/// Whether the dependency of `op` that ended last is an all-reduce of its own rank: then the idle time before
/// it is TP bubble, else PP bubble. Of dependencies that ended together, the all-reduce counts.
bool waited_for_own_all_reduce(const Program& program, const Timeline& timeline, OpId op);

/// Splits what each compute stream did not compute of a timeline, wherever it comes from, by the dependency
/// that kept it waiting. Of ranks without a known op the result says nothing.
std::vector<RankTime> rank_times(const Program& program, const Timeline& timeline);

/// Replays `program` with `seconds[op]` ≥ 0 per op. Without contention the time grows as the number of ops;
/// with it, as ops · log(ranks). Throws std::runtime_error that names an op if the program deadlocks.
Timeline simulate(const Program& program, std::span<const double> seconds, const Contention& contention = {},
                  const Processors& processors = {});

}  // namespace stp
