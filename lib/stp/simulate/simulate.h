// The discrete-event engine: simulates a Program in virtual time, from ops, streams and seconds.
#pragma once

#include <span>
#include <vector>

#include "stp/program/program.h"

namespace stp {

/// The shares of full speed at which a compute op and an all-reduce of the same rank run while they overlap,
/// if both contend (Op::contends): any collective of its group.
struct Contention {
  double compute = 1;
  double all_reduce = 1;
};

/// Processors that the ops of all ranks share, such as the cores of a CPU.
struct Processors {
  /// Speed of each by how many are busy ([0]: one), as a share of one alone; more workers than processors
  /// take turns. Empty: every stream has its own.
  std::vector<double> rates;
  /// How many workers an op keeps busy: the ranks that one rank of the Program represents.
  int per_op = 1;
};

/// How one rank's compute stream spent the step (docs/metrics.md).
struct RankTime {
  double compute_s = 0;    // its ops' time, with contention
  double pp_bubble_s = 0;  // idle for another rank, at the end too
  double tp_bubble_s = 0;  // idle for its own all-reduce
};

struct Timeline {
  std::vector<double> start, end;  // seconds, by op
  std::vector<bool> known;         // by op, if only some were timed; empty: all
  double step_s = 0;               // the end of the last op on any stream, or simulate_repeated()'s
  std::vector<RankTime> ranks;     // compute + pp_bubble + tp_bubble = step_s
  std::vector<double> begin;       // by rank: the end of its step before; empty: 0

  [[nodiscard]] bool has(OpId op) const { return known.empty() || known[op]; }
};

/// Whether the dependency of `op` that ended last is an all-reduce, or an exchange of a context-parallel
/// ring, of its own rank: then the idle time before it is TP bubble, else PP bubble. If several ended
/// together, the own one counts.
bool waited_for_own_all_reduce(const Program& program, const Timeline& timeline, OpId op);

/// Splits the idle time of each compute stream of a simulated or measured timeline by the dependency that it
/// waited for. The entries of ranks without a known op are meaningless.
std::vector<RankTime> rank_times(const Program& program, const Timeline& timeline);

/// Simulates `program` with `seconds[op]` ≥ 0 per op. Run time: O(ops) without contention, else O(ops ·
/// log(ranks)). Throws std::runtime_error that names an op if the program deadlocks.
Timeline simulate(const Program& program, std::span<const double> seconds, const Contention& contention = {},
                  const Processors& processors = {});

/// The steps that simulate_repeated() simulates at most.
inline constexpr int kMostSteps = 32;

/// Simulates steps of a Program with post-validation one after the other (repeat()), until each rank's last
/// op ends as much later than in the step before as every other rank's, or for kMostSteps. Returns the last
/// step: times from when the first rank began it; `step_s`: by how much later the slowest rank ended it.
Timeline simulate_repeated(const Program& program, std::span<const double> seconds,
                           const Contention& contention = {});

}  // namespace stp
