// Seconds of the chains that a pass of a chunk becomes, each alone on an idle rank.
#pragma once

#include "stp/cost/cost_table.h"
#include "stp/program/lower.h"

namespace stp {

/// One chain: seconds of its ops by kind, and until its output is there.
struct ChainCost {
  double compute = 0;
  double contending = 0;       // collectives that contend with compute
  double tp = 0, cp = 0;       // all ops of these streams
  double alone = 0;            // from its input to its output; of B: without its weight gradients
  double first = 0, last = 0;  // the contending collectives that begin and end it; 0 if compute does

  /// All ops one after the other.
  [[nodiscard]] double serial() const { return compute + tp + cp; }
};

/// Chains of one microbatch, by pass. With overlapped tensor parallelism a B differs from I and W: `B_I` and
/// `B_W` are its parts. Otherwise they equal I and W.
struct PassChains {
  ChainCost F, I, W, B_I, B_W;
};

/// What chunks are made of. Chains add up along a chunk, because each unit waits for the one before it.
struct UnitChains {
  PassChains first;  // before the first layer: vision encoder, embedding
  PassChains layer;  // a layer whose factor is 1
  PassChains head;
  PassChains other;  // a layer that is not recomputed, where only the first `count` of a chunk are
  int count = 1 << 30;
};

/// Lowers and prices one chunk of each kind.
UnitChains unit_chains(const CostTable& table, const Lowering& lowering);

/// The chains of each virtual stage, with CostTable::layer_factors.
std::vector<PassChains> stage_chains(const UnitChains& units, const Placement& placement,
                                     const std::vector<int>& layers_per_stage,
                                     const std::vector<double>& layer_factors);

}  // namespace stp
