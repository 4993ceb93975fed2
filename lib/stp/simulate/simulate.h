// The discrete-event engine: it simulates a Program in virtual time, from ops, streams and seconds.
#pragma once

#include <span>
#include <vector>

#include "stp/program/program.h"

namespace stp {

/// Processors that the ops of all ranks share, such as a CPU's cores.
struct Processors {
  /// Speed of each busy processor, by the number of busy ones ([0]: one), relative to one alone. More workers
  /// than processors take turns. Empty: every stream has its own processor.
  std::vector<double> rates;
  /// Workers that one op keeps busy: the ranks that one rank of the Program represents.
  int per_op = 1;
};

/// How one rank's compute stream spent the step (docs/metrics.md).
struct RankTime {
  double compute_s = 0;    // time of its ops, with contention
  double pp_bubble_s = 0;  // idle for another rank, or at the end
  double tp_bubble_s = 0;  // idle for its own all-reduce
};

struct Timeline {
  std::vector<double> start, end;  // seconds, by op
  std::vector<bool> known;         // by op, if only some have times; empty: all
  double step_s = 0;               // the end of the last op on any stream, or simulate_repeated()'s
  std::vector<RankTime> ranks;     // compute + pp_bubble + tp_bubble = step_s
  std::vector<double> begin;       // by rank: the end of its previous step; empty: 0

  [[nodiscard]] bool has(OpId op) const { return known.empty() || known[op]; }
};

/// How much of the idle time from `before` to the start of `op`, a compute op, is TP bubble
/// (docs/architecture.md, "Accounting"); the rest is PP bubble.
double tp_bubble(const Program& program, const Timeline& timeline, OpId op, double before);

/// Splits the idle time of each compute stream of a simulated or measured timeline into PP and TP bubble.
/// Ranks without a known op get meaningless entries.
std::vector<RankTime> rank_times(const Program& program, const Timeline& timeline);

/// Simulates `program` with `seconds[op]` ≥ 0 for each op. No op depends on a later op of its rank. Run time:
/// O(ops). Throws std::runtime_error that names an op if the program deadlocks.
Timeline simulate(const Program& program, std::span<const double> seconds, const Contention& contention = {},
                  const Processors& processors = {});

/// The largest number of steps in simulate_repeated().
inline constexpr int kMostSteps = 32;

/// Simulates consecutive steps of a Program with post-validation (repeat()), until all ranks' steps take
/// equally long from last op to last op, or for kMostSteps. Returns the last step; its times count from the
/// first rank's begin, and `step_s` is the slowest rank's time since its last op of the previous step.
Timeline simulate_repeated(const Program& program, std::span<const double> seconds,
                           const Contention& contention = {});

}  // namespace stp
