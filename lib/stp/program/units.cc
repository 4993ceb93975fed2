#include "stp/program/units.h"

#include <algorithm>

namespace stp {
namespace {

struct UnitOfChunk {
  Unit unit;
  int16_t layer;
};

// In the order of the forward.
std::vector<UnitOfChunk> units_of(int layers, bool last, const ChainOptions& options) {
  std::vector<UnitOfChunk> units;
  const auto add_layers = [&](int count, Unit attn, Unit mlp) {
    for (int layer = 0; layer < count; ++layer)
      for (const Unit unit : {attn, mlp}) units.push_back({unit, static_cast<int16_t>(layer)});
  };
  if (options.vision_layers > 0) {
    units.push_back({Unit::patches, 0});
    add_layers(options.vision_layers, Unit::vision_attn, Unit::vision_mlp);
    units.push_back({Unit::merger, 0});
  }
  if (options.embedding) units.push_back({Unit::embedding, 0});
  add_layers(layers, Unit::attn, Unit::mlp);
  if (last) units.push_back({Unit::head, 0});
  return units;
}

Segment forward(const UnitOfChunk& of, bool recomputed) {
  const bool gathers = of.unit != Unit::embedding && of.unit != Unit::patches;
  return {
      of.unit, of.layer,  Segment::Main::forward, is_reduced(of.unit, UnitPass::F), Segment::Weights::none,
      gathers, recomputed};
}

}  // namespace

UnitPass pass_of(const Segment& segment) {
  return segment.main == Segment::Main::forward          ? UnitPass::F
         : segment.main == Segment::Main::input_gradient ? UnitPass::I
                                                         : UnitPass::W_late;
}

std::vector<Segment> segments(Pass pass, int layers, bool last, BackwardOrder order, ChainOptions options) {
  using Main = Segment::Main;
  using Weights = Segment::Weights;
  std::vector<UnitOfChunk> units = units_of(layers, last, options);
  std::vector<Segment> chain;
  if (pass == Pass::F) {
    for (const UnitOfChunk& of : units) chain.push_back(forward(of, false));
    return chain;
  }
  std::ranges::reverse(units);
  for (const UnitOfChunk& of : units) {
    if (!has_pass(of.unit, UnitPass::I)) {  // it has weight gradients alone
      if (pass != Pass::I) chain.push_back({of.unit, 0, Main::weight_gradients, false, Weights::none, true});
      continue;
    }
    if (options.recompute && pass != Pass::W && of.unit == Unit::mlp)
      for (const Unit unit : {Unit::attn, Unit::mlp}) chain.push_back(forward({unit, of.layer}, true));
    // Without an early part of weight gradients both orders are one.
    const Weights weights = pass != Pass::B ? Weights::none
                            : order == BackwardOrder::suite || !has_pass(of.unit, UnitPass::W_early)
                                ? Weights::both_behind
                                : Weights::early_before_late_behind;
    const bool input_gradients = pass != Pass::W;
    chain.push_back({of.unit, of.layer, input_gradients ? Main::input_gradient : Main::weight_gradients,
                     input_gradients && is_reduced(of.unit, UnitPass::I), weights,
                     input_gradients && of.unit != Unit::head});
  }
  return chain;
}

}  // namespace stp
