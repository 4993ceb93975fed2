#include "stp/cost/chain_costs.h"

#include <algorithm>
#include <array>

namespace stp {
namespace {

constexpr std::array kChains{&PassChains::F, &PassChains::I, &PassChains::W, &PassChains::B_I,
                             &PassChains::B_W};

bool is_weight_gradient(const Op& op) {
  return op.kind == OpKind::weight_gradients ||
         (op.kind == OpKind::compute &&
          (op.unit_pass == UnitPass::W_early || op.unit_pass == UnitPass::W_late));
}

ChainCost& chain_of(PassChains& chains, const Op& op) {
  switch (op.pass) {
    case Pass::F:
      return chains.F;
    case Pass::I:
      return chains.I;
    case Pass::W:
      return chains.W;
    default:  // B; there are no passes of the vocabulary
      break;
  }
  return is_weight_gradient(op) ? chains.B_W : chains.B_I;
}

// Adds the ops [begin, end) of one action, which start on an idle rank.
void add_action(const Program& program, const std::vector<double>& seconds, OpId begin, OpId end,
                PassChains& chains) {
  std::array<double, 3> streams{};  // the ends of compute, tp, cp
  std::vector<double> ends(end - begin);
  for (OpId id = begin; id < end; ++id) {
    const Op& op = program.ops[id];
    ChainCost& chain = chain_of(chains, op);
    const StreamKind kind = program.stream_of(id).kind;
    const bool compute = kind == StreamKind::compute, tp = kind == StreamKind::tp;
    double& stream = streams[compute ? 0 : tp ? 1 : 2];
    double start = stream;
    for (const OpId needed : program.dependencies(id))
      if (needed >= begin) start = std::max(start, ends[needed - begin]);
    // A backward's output does not wait for its last weight gradients.
    const bool aside = op.pass == Pass::B && is_weight_gradient(op);
    ends[id - begin] = stream = start + (aside ? 0 : seconds[id]);
    chain.alone = std::max(chain.alone, stream);
    (compute ? chain.compute : tp ? chain.tp : chain.cp) += seconds[id];
    const double collective = tp && program.contends(id) ? seconds[id] : 0;
    chain.contending += collective;
    if (id == begin) chain.first = collective;
    if (!aside) chain.last = collective;
  }
}

// Seconds of the layer's chain where all of its compute takes `factor` times as long. Exact if no op overlaps
// another, else a lower bound: exposed communication grows as compute shrinks.
double alone_with(const ChainCost& layer, double factor) {
  const double exposed = layer.alone - layer.compute;
  const bool serial = layer.alone >= layer.serial() * (1 - 1e-12);
  const double hidden = serial || factor <= 1 ? 0 : (factor - 1) * layer.compute;
  return factor * layer.compute + std::max(0.0, exposed - hidden);
}

void add(ChainCost& chain, const ChainCost& unit, int count = 1) {
  chain.compute += count * unit.compute;
  chain.contending += count * unit.contending;
  chain.tp += count * unit.tp;
  chain.cp += count * unit.cp;
  chain.alone += count * unit.alone;
}

// A layer whose compute takes `factor` times as long.
ChainCost with_factor(ChainCost layer, double factor) {
  layer.alone = alone_with(layer, factor);
  layer.compute *= factor;
  return layer;
}

}  // namespace

UnitChains unit_chains(const CostTable& table, const Lowering& lowering) {
  if (const int count = lowering.strategy.recompute.first; count > 0) {
    Lowering alike = lowering;
    alike.strategy.recompute = {};
    const PassChains other = unit_chains(table, alike).layer;
    alike.strategy.recompute.layer = true;
    UnitChains units = unit_chains(table, alike);
    units.other = other;
    units.count = count;
    return units;
  }
  // One rank holds the three kinds of chunks; no op of its list waits for a later op.
  Lowering alone{.backward = lowering.backward,
                 .strategy = lowering.strategy.of_compute(),
                 .embedding = lowering.embedding,
                 .vision_layers = lowering.vision_layers};
  const bool overlaps = alone.strategy.overlaps();
  if (!overlaps) alone.strategy.tp_overlap = TpOverlap::none;
  Schedule schedule{"alone", Placement::loop(1, 3), overlaps ? 2 : 1, {{}}};
  for (int16_t chunk = 0; chunk < 3; ++chunk) schedule.ranks[0].emplace_back(Action{Pass::F, chunk, 0});
  for (int16_t chunk = 2; chunk >= 0; --chunk) {
    schedule.ranks[0].emplace_back(Action{Pass::I, chunk, 0});
    schedule.ranks[0].emplace_back(Action{Pass::W, chunk, 0});
    if (overlaps) schedule.ranks[0].emplace_back(Action{Pass::B, chunk, 1});
  }
  const Program program = lower(std::move(schedule), {0, 1, 0}, alone);
  const std::vector<double> seconds = op_seconds_without_factors(program, table);
  UnitChains units;
  const std::array<PassChains*, 3> of_chunk{&units.first, &units.layer, &units.head};
  for (OpId begin = 0, end = 0; begin < program.ops.size(); begin = end) {
    while (end < program.ops.size() && program.ops[end].block == program.ops[begin].block) ++end;
    add_action(program, seconds, begin, end, *of_chunk[program.ops[begin].chunk]);
  }
  if (!overlaps)
    for (PassChains* const chains : of_chunk) chains->B_I = chains->I, chains->B_W = chains->W;
  return units;
}

std::vector<PassChains> stage_chains(const UnitChains& units, const Placement& placement,
                                     const std::vector<int>& layers_per_stage,
                                     const std::vector<double>& layer_factors) {
  const size_t stages = layers_per_stage.size();
  std::vector<PassChains> result(stages);
  size_t layer = 0;
  for (size_t stage = 0; stage < stages; ++stage) {
    const bool first = placement.is_first(static_cast<int>(stage)),
               last = placement.is_last(static_cast<int>(stage));
    const int layers = layers_per_stage[stage];
    for (const auto pass : kChains) {
      ChainCost& chain = result[stage].*pass;
      if (first) add(chain, units.first.*pass);
      const int alike = std::min(layers, units.count);
      if (layer_factors.empty()) {
        add(chain, units.layer.*pass, alike);
        add(chain, units.other.*pass, layers - alike);
      }
      for (int i = 0; i < layers && !layer_factors.empty(); ++i)
        add(chain, with_factor((i < alike ? units.layer : units.other).*pass, layer_factors.at(layer + i)));
      if (last) add(chain, units.head.*pass);
      // The units with which a forward begins and ends; a backward ends and begins with them. The embedding's
      // W gathers before all else.
      const auto bottom = first && (units.first.*pass).serial() > 0 ? &UnitChains::first
                          : layers > 0                              ? &UnitChains::layer
                                                                    : &UnitChains::head;
      const auto top = last             ? &UnitChains::head
                       : layers > alike ? &UnitChains::other
                       : layers > 0     ? &UnitChains::layer
                                        : &UnitChains::first;
      const bool forward = pass == &PassChains::F,
                 weights = pass == &PassChains::W || pass == &PassChains::B_W;
      chain.first = (units.*(forward || weights ? bottom : top).*pass).first;
      chain.last = (units.*(forward ? top : bottom).*pass).last;
    }
    layer += layers;
  }
  return result;
}

}  // namespace stp
