// The stage balancer: how many layers each virtual stage has, by measured or modelled costs of its units.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "stp/cost/cost_table.h"
#include "stp/program/lower.h"
#include "stp/schedule/placement.h"

namespace stp {

/// Seconds of one microbatch, forward and backward.
struct SplitCosts {
  double layer;
  std::vector<double> stage;  // by virtual stage, of all but its layers: vision encoder, embedding, head
  std::vector<double> layer_factors;  // of `layer`, one per layer; empty: all 1

  /// Seconds of each virtual stage.
  [[nodiscard]] std::vector<double> of_stages(const std::vector<int>& layers) const;
};

/// The costs of `stages` virtual stages by a cost table: compute, and all-to-alls, which nothing hides. Other
/// communication is hidden in part, and by how much depends on the schedule.
SplitCosts split_costs(const CostTable& table, const Lowering& lowering, int stages);

/// How long the most loaded place of a pipeline works on one microbatch: a rank on all its chunks; in V
/// placement also two adjacent virtual stages together, between which a microbatch goes forward and comes
/// back while each runs one block.
double bottleneck_seconds(const SplitCosts& costs, const std::vector<int>& layers,
                          const Placement& placement);

/// Whether a rank has memory for its chunks with these numbers of layers. With more layers in a chunk and the
/// same in the others it must need more.
using Fits = std::function<bool(int rank, const std::vector<int>& layers_of_chunks)>;

/// The split of `layers` over the virtual stages that is expected to be the fastest, among all that fit; none
/// if no split fits. `first` is 1 if the first virtual stage must stay without layers, else 0. At most two
/// chunks a rank. Where layers are alike, it is one of those with the smallest bottleneck_seconds(), of these
/// one with the fewest layers in its largest chunk, and no layer of it could move to a stage that would still
/// be shorter than the one it leaves. The first two are exact, by dynamic programming over the ranks, in
/// O(ranks · cap² · log(stages · layers)) where a chunk may have up to cap layers. With `layer_factors` it is
/// that split of layers of their mean, improved as long as one layer more for a stage and one less for
/// another, at most 16 stages away, lowers the bottleneck, or keeps it and makes stages more alike: not
/// always the best one.
std::optional<std::vector<int>> balanced_partition(int layers, const SplitCosts& costs,
                                                   const Placement& placement, int first, const Fits& fits);

/// Seconds of a step with a split, as simulated.
using StepSeconds = std::function<double(const std::vector<int>& layers)>;

/// What the bottleneck does not know, the schedule's order: moves single layers of `split` between adjacent
/// virtual stages and between the chunks of a rank, as long as a step gets shorter by 0.01 % or more and the
/// split fits. Asks for `most` steps at most, and for none that is too long by the compute of its busiest
/// rank alone, `microbatches` times that of one.
std::vector<int> fastest_nearby(std::vector<int> split, const SplitCosts& costs, const Placement& placement,
                                int first, const Fits& fits, double microbatches,
                                const StepSeconds& step_seconds, int most);

}  // namespace stp
