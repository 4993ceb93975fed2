// A lower bound on the step of one given order, far cheaper than its simulation.
#pragma once

#include <array>
#include <map>
#include <utility>

#include "scenario.h"
#include "stp/cost/cost_table.h"

namespace stp {

/// Costs of an outline for bounds: without reductions of gradients, whose buckets it does not know.
CostTable bounding_table(const Experiment& experiment, const Program& program);

/// Seconds of a step whose compute is spread evenly over ranks: no split and no order is faster.
double even_seconds(const Experiment& experiment);

/// Bounds steps of orders of one configuration, whatever its number of microbatches, placement and order.
///
/// A block occupies its rank's compute stream at least as long as its compute takes, and as long as each of
/// its chains from its first compute op to its last: between segments a chain waits for its collective.
/// Blocks follow one another on the stream, contention only slows them. Before a rank's first block, the
/// forward of all earlier stages runs; after its last backward, their input gradients; after all, its
/// optimizer.
class OrderBound {
 public:
  /// `table` must outlive this.
  OrderBound(Lowering lowering, const CostTable& table) : lowering_(std::move(lowering)), table_(table) {}
  /// Seconds that no step of `schedule` with these layers by virtual stage is below; 0 for two pipelines and
  /// for a shared vocabulary.
  double operator()(const Schedule& schedule, const std::vector<int>& layers);

 private:
  enum Place { first, inner, last, kPlaces };
  // By pass: F, I, W, B.
  struct Seconds {
    std::array<double, 4> compute{}, chain{};
  };
  const std::array<Seconds, kPlaces>& of(int layers);
  Seconds of_stage(int stage, const std::vector<int>& layers);

  Lowering lowering_;
  const CostTable& table_;
  std::map<int, std::array<Seconds, kPlaces>> by_layers_;
};

}  // namespace stp
