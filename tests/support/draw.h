// Random schedules, options and costs, for laws that hold for all of them.
#pragma once

#include <optional>
#include <random>

#include "baselines/registry.h"
#include "stp/base/error.h"
#include "stp/cost/cost_table.h"
#include "stp/schedule/share_vocabulary.h"
#include "support/programs.h"

namespace stp {

/// Draws schedules, options and costs.
class Draw {
 public:
  explicit Draw(unsigned seed) : random_(seed) {}

  bool chance(int in) { return random_() % in == 0; }
  int up_to(int most) { return 1 + static_cast<int>(random_() % most); }
  double seconds() { return chance(6) ? 0 : std::uniform_real_distribution<double>(0, 2)(random_); }
  double share() { return std::uniform_real_distribution<double>(0.3, 1)(random_); }

  // Of the registry, or random, some made to share the vocabulary; none if the generator refuses the size.
  std::optional<Schedule> schedule() {
    auto made = order();
    return made ? std::optional(perhaps_shared(std::move(*made))) : std::nullopt;
  }

  // Some orders of one pipeline are made to share the vocabulary.
  Schedule perhaps_shared(Schedule made) {
    if (!is_single_and_whole(made) || !chance(6)) return made;
    return share_vocabulary(std::move(made), chance(2) ? Vocabulary::one_barrier : Vocabulary::two_barriers);
  }

  std::optional<Schedule> order() {
    const bool both_ways = chance(20);
    const int p = both_ways ? 2 * up_to(3) : up_to(6), m = chance(3) ? p * up_to(4) : up_to(4 * p);
    if (both_ways) return make_schedule(find_generator("dualpipe"), {p, 2 * p + 2 * up_to(p)});
    if (chance(3)) {
      const int v = up_to(3);
      const Placement placement = v == 2      ? Placement::v(p)
                                  : chance(2) ? Placement::wave(p, v)
                                              : Placement::loop(p, v);
      return random_schedule(random_, placement, m);
    }
    const auto& all = generators();
    const Generator& generator = *all[random_() % all.size()];
    GeneratorRequest request{.pp = p, .microbatches = m};
    if (generator.cost_aware && chance(2)) request.costs = {seconds() + 0.1, seconds(), seconds(), seconds()};
    try {
      return make_schedule(generator, request);
    } catch (const InputError&) {
      return std::nullopt;
    }
  }

  std::vector<int> layers(const Placement& placement) {
    const int depth = placement.depth();
    std::vector<int> layers = chance(2) ? std::vector<int>(depth, up_to(2)) : random_layers(random_, depth);
    for (int stage = depth; stage < placement.stages(); ++stage) layers.push_back(layers[stage - depth]);
    return layers;
  }

  Strategy strategy(const Schedule& schedule) {
    Strategy strategy{.pp = schedule.pp()};
    strategy.cp = chance(4) ? up_to(3) : 1;
    strategy.cp_method = static_cast<CpMethod>(random_() % 2);
    strategy.sequence_parallel = chance(2);
    const bool shared = vocabulary_of(schedule) != Vocabulary::whole;
    if (chance(4)) strategy.recompute = kRecomputes[random_() % std::size(kRecomputes)].choice;
    if (strategy.sequence_parallel && chance(3)) strategy.tp_overlap = TpOverlap::megatron;
    if (strategy.tp_overlap == TpOverlap::none && chance(8) && !shared)
      strategy.tp_overlap = TpOverlap::domino;
    strategy.tp = up_to(4);
    strategy.dp = up_to(2);
    strategy.zero = strategy.replicas() > 1 && chance(2) && !shared;
    strategy.post_validation = chance(8) && !shared && schedule.placement.pipelines() == 1;
    if (chance(6)) strategy.offload = share();
    return strategy;
  }

  Lowering lowering(const Strategy& strategy, const Schedule& schedule) {
    constexpr BraidPolicy kPolicies[] = {BraidPolicy::static_merge, BraidPolicy::sequential,
                                         BraidPolicy::timed, BraidPolicy::paired};
    return {.release = kReleases[random_() % std::size(kReleases)],
            .backward = chance(2) ? BackwardOrder::suite : BackwardOrder::megatron,
            .optimizer = strategy.post_validation || chance(2),
            .braid = chance(3) ? kPolicies[random_() % std::size(kPolicies)] : BraidPolicy::static_merge,
            .strategy = strategy,
            .data_parallel = strategy.replicas() > 1,
            .embedding = chance(2),
            .tied = chance(4) && vocabulary_of(schedule) == Vocabulary::whole &&
                    schedule.placement.pipelines() == 1};
  }

  CostTable table(const Schedule& schedule, const std::vector<int>& layers, const Lowering& lowering) {
    CostTable table;
    const bool fast = chance(3);  // little communication, as on real machines
    const auto communication = [&] { return fast ? seconds() / 10 : seconds(); };
    for (const Unit unit : {Unit::attn, Unit::mlp, Unit::head, Unit::embedding})
      for (const UnitPass pass : kUnitPasses)
        if (has_pass(unit, pass)) table.at(unit, pass) = seconds();
    for (const Unit unit : kLayerUnits)
      for (const UnitPass pass : {UnitPass::F, UnitPass::I}) set_parts(table, lowering.strategy, unit, pass);
    if (lowering.strategy.overlaps()) table.bulk = {{{seconds(), seconds()}, {seconds(), seconds()}}};
    for (double* const each :
         {&table.at(Exchange::kv), &table.at(Exchange::qkv), &table.at(Exchange::output), &table.all_reduce,
          &table.reduce_scatter, &table.all_gather, &table.at(Exchange::rows), &table.piece_scatter[0],
          &table.piece_scatter[1], &table.last_piece_scatter[0], &table.last_piece_scatter[1],
          &table.transfer_within_node, &table.transfer_between_nodes, &table.embedding_reduce,
          &table.gradient_reduce_per_layer, &table.number_within_node, &table.number_between_nodes,
          &table.offload_per_layer, &table.reload_per_layer})
      *each = communication();
    table.at(Exchange::kv_gradients) = table.at(Exchange::kv);
    table.transfer_beside_another = table.transfer_between_nodes * up_to(2);
    for (int rank = 0; rank < schedule.pp(); ++rank) {
      table.node_of_rank.push_back(rank / 2);
      table.optimizer.push_back(seconds());
      table.gradient_norm.push_back(seconds());
    }
    int count = 0;
    for (const int each : layers) count += each;
    if (chance(5))
      for (const auto& [unit, pass] :
           {std::pair{Unit::mlp, UnitPass::F}, {Unit::mlp, UnitPass::W_late}, {Unit::head, UnitPass::I}})
        for (int rank = 0; rank < schedule.pp(); ++rank) table.by_rank[{unit, pass}].push_back(seconds());
    table.vocabulary = {communication(), communication(), communication(), communication(), 0};
    if (chance(5))
      for (int i = 0; i < count; ++i) table.layer_factors.push_back(2 * share());
    if (chance(5))
      for (int i = 0; i < schedule.microbatches; ++i) table.microbatch_factors.push_back(2 * share());
    return table;
  }

  Contention contention() { return chance(3) ? Contention{} : Contention{share(), share()}; }

 private:
  void set_parts(CostTable& table, const Strategy& strategy, Unit unit, UnitPass pass) {
    if (!strategy.divides(unit)) return;
    const auto steps = [&](UnitPart part) {
      std::vector<double> each(strategy.steps(unit, pass, part));
      for (double& step : each) step = seconds();
      return each;
    };
    table.parts_of(unit, pass) = {seconds(), steps(UnitPart::before), steps(UnitPart::core),
                                  steps(UnitPart::after)};
  }

  std::mt19937 random_;
};

}  // namespace stp
