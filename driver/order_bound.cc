#include "order_bound.h"

#include <algorithm>
#include <numeric>

#include "run_simulated.h"
#include "stp/cost/balance.h"
#include "stp/model/partition.h"
#include "stp/simulate/simulate.h"

namespace stp {
namespace {

size_t index_of(Pass pass) { return static_cast<size_t>(pass); }

}  // namespace

CostTable bounding_table(const Experiment& experiment, const Program& program) {
  CostTable table = cost_table_of(experiment, program);
  for (auto* const of_stages : {&table.gradient_reduce, &table.gradient_scatter, &table.weight_gather})
    for (std::vector<double>& of_stage : *of_stages) std::ranges::fill(of_stage, 0);
  return table;
}

double even_seconds(const Experiment& experiment) {
  const int pp = experiment.strategy.pp, layers = experiment.hardware->model.layers;
  Experiment plain = experiment;
  plain.braid = BraidPolicy::static_merge;
  const Schedule none{"", Placement::loop(pp, 1), plain.microbatches, std::vector<std::vector<Block>>(pp)};
  const std::vector<int> split = even_partition(layers, pp);
  const Lowering lowering = lowering_for(plain, none, split);
  const SplitCosts costs = split_costs(cost_table_of(plain, outline(none, split, lowering)), lowering, pp);
  const double fixed = std::accumulate(costs.stage.begin(), costs.stage.end(), 0.0);
  return (fixed + costs.layer * layers) * plain.microbatches / pp;
}

// Three stages on one rank, one pass after the other; each waits for the one before, or for nothing.
const std::array<OrderBound::Seconds, OrderBound::kPlaces>& OrderBound::of(int layers) {
  if (const auto found = by_layers_.find(layers); found != by_layers_.end()) return found->second;
  std::array<Seconds, kPlaces> seconds{};
  const Lowering alone{.backward = lowering_.backward,
                       .strategy = lowering_.strategy.of_compute(),
                       .embedding = lowering_.embedding,
                       .vision_layers = 0};
  for (const bool split : {false, true}) {
    Schedule schedule{"alone", Placement::loop(1, kPlaces), 1, {{}}};
    auto& blocks = schedule.ranks[0];
    for (int chunk = 0; chunk < kPlaces; ++chunk) blocks.emplace_back(Action{Pass::F, int16_t(chunk), 0});
    for (int chunk = kPlaces - 1; chunk >= 0; --chunk)
      blocks.emplace_back(Action{split ? Pass::I : Pass::B, int16_t(chunk), 0});
    for (int chunk = 0; split && chunk < kPlaces; ++chunk)
      blocks.emplace_back(Action{Pass::W, int16_t(chunk), 0});
    const Program program = lower(std::move(schedule), std::vector<int>(kPlaces, layers), alone);
    const std::vector<double> op_times = op_seconds(program, table_);
    const Timeline timeline = simulate(program, op_times);
    const auto& kept = program.schedule.ranks[0];
    std::vector<double> begin(kept.size(), 1e300), end(kept.size(), 0), compute(kept.size(), 0);
    for (OpId id = 0; id < program.ops.size(); ++id) {
      const Op& op = program.ops[id];
      if (op.block < 0 || (op.kind != OpKind::compute && op.kind != OpKind::weight_gradients)) continue;
      compute[op.block] += op_times[id];
      begin[op.block] = std::min(begin[op.block], timeline.start[id]);
      end[op.block] = std::max(end[op.block], timeline.end[id]);
    }
    // Halves of microbatches are braided among themselves: their compute alone counts.
    const int parts = program.schedule.microbatches;
    for (size_t block = 0; block < kept.size(); ++block)
      for (const Action& action : kept[block].actions()) {
        Seconds& of = seconds[action.chunk];
        const size_t pass = index_of(action.pass);
        if (split && action.pass == Pass::F) continue;  // it is known
        of.compute[pass] += compute[block] / static_cast<double>(kept[block].actions().size());
        of.chain[pass] = parts > 1 || action.pass == Pass::W
                             ? of.compute[pass]
                             : std::max(compute[block], end[block] - begin[block]);
      }
  }
  return by_layers_.emplace(layers, seconds).first->second;
}

OrderBound::Seconds OrderBound::of_stage(int stage, const std::vector<int>& layers) {
  const auto& places = of(layers[stage]);
  const bool is_last = stage + 1 == static_cast<int>(layers.size());
  return places[is_last ? last : stage == 0 ? first : inner];
}

double OrderBound::operator()(const Schedule& schedule, const std::vector<int>& layers) {
  const Placement& placement = schedule.placement;
  if (!is_single_and_whole(schedule)) return 0;
  const int stages = placement.stages();
  std::vector<Seconds> seconds;
  std::vector<double> forward{0}, gradient{0};  // of all earlier stages
  for (int stage = 0; stage < stages; ++stage) {
    seconds.push_back(of_stage(stage, layers));
    forward.push_back(forward.back() + seconds.back().chain[0]);
    gradient.push_back(gradient.back() + seconds.back().chain[1]);
  }
  const auto optimizer = [&](int rank) { return table_.optimizer.empty() ? 0 : table_.optimizer[rank]; };
  // The ranks' steps end one after the other, and so may begin.
  if (lowering_.strategy.post_validation) forward.assign(stages + 1, 0), gradient.assign(stages + 1, 0);
  double bound = 0;
  for (int rank = 0; rank < placement.ranks(); ++rank) {
    const auto& blocks = schedule.ranks[rank];
    if (blocks.empty()) continue;
    double busy = forward[placement.stage(rank, blocks.front().actions()[0].chunk)], behind = 0;
    for (const Block& block : blocks) {
      double compute = 0, chain = 0;
      for (const Action& action : block.actions()) {
        const int stage = placement.stage(rank, action.chunk);
        const size_t pass = index_of(action.pass);
        compute += seconds[stage].compute[pass];
        chain = std::max(chain, seconds[stage].chain[pass]);
        if (is_backward(action.pass)) behind = std::max(behind, busy + gradient[stage + 1]);
      }
      busy += std::max(compute, chain);
    }
    bound = std::max({bound, busy + optimizer(rank), behind + optimizer(placement.rank_of(0))});
  }
  return bound;
}

}  // namespace stp
