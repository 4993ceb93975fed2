// The stage balancer chooses how many layers each virtual stage has, by measured or modelled costs of units.
#pragma once

#include <algorithm>
#include <functional>
#include <optional>
#include <vector>

#include "stp/cost/cost_table.h"
#include "stp/program/lower.h"
#include "stp/schedule/placement.h"

namespace stp {

/// Seconds of one microbatch, forward and backward together.
struct SplitCosts {
  double layer;
  std::vector<double> stage;          // by virtual stage, besides: vision encoder, embedding, head
  std::vector<double> layer_factors;  // one factor of `layer` and `again` per layer; empty: all 1
  double again = 0;                   // more, of each of a chunk's first `first` layers: block-N
  int first = 0;

  /// Seconds of a chunk of equal layers.
  [[nodiscard]] double of_layers(int count) const { return count * layer + std::min(count, first) * again; }
  /// Seconds of each virtual stage.
  [[nodiscard]] std::vector<double> of_stages(const std::vector<int>& layers) const;
};

/// The costs of `stages` virtual stages from a cost table: compute and all-to-alls, which nothing hides, of
/// the shorter of B and I and W. Other communication is left out, because the schedule decides how much of it
/// is hidden.
SplitCosts split_costs(const CostTable& table, const Lowering& lowering, int stages);

/// Seconds that the most loaded place of a pipeline works on one microbatch. A place is a rank with all its
/// chunks. In V placement, two adjacent virtual stages are also a place: a microbatch goes forward and comes
/// back between them while each runs one block.
double bottleneck_seconds(const SplitCosts& costs, const std::vector<int>& layers,
                          const Placement& placement);

/// Whether a rank has memory for chunks with these numbers of layers. A chunk with more layers must need more
/// memory if the other chunks stay the same.
using Fits = std::function<bool(int rank, const std::vector<int>& layers_of_chunks)>;

/// Returns the split of `layers` over the virtual stages that is expected to be the fastest among all that
/// fit; none if no split fits. `first` is 1 if the first virtual stage must stay without layers, else 0. At
/// most two chunks per rank. For equal layers the split has the smallest bottleneck_seconds(), then the
/// fewest layers in its largest chunk; then no layer can move to a stage that would still be shorter than the
/// stage it leaves. The first two criteria are exact, by dynamic programming over the ranks, in O(ranks ·
/// cap² · log(stages · layers)) if a chunk has up to cap layers. With `layer_factors` it starts from the
/// split for layers of mean cost, and moves single layers between stages at most 16 apart while that lowers
/// the bottleneck, or keeps it and makes stages more alike. This result is not always the best split.
std::optional<std::vector<int>> balanced_partition(int layers, const SplitCosts& costs,
                                                   const Placement& placement, int first, const Fits& fits);

/// Simulated seconds of a step with a split.
using StepSeconds = std::function<double(const std::vector<int>& layers)>;

/// Improves `split` by simulation, which knows the order of the schedule: moves single layers between
/// adjacent virtual stages and between the chunks of a rank, while a step gets shorter by 0.01 % or more and
/// the split fits. If `other` fits and is faster than what comes of that, improves `other`. Tries at most
/// `most` other splits, and none whose busiest rank's compute, `microbatches` times that of one microbatch,
/// is already too long. Simulates none twice.
std::vector<int> fastest_nearby(std::vector<int> split, const std::vector<int>& other,
                                const SplitCosts& costs, const Placement& placement, int first,
                                const Fits& fits, double microbatches, const StepSeconds& step_seconds,
                                int most);

}  // namespace stp
