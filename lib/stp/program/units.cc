#include "stp/program/units.h"

#include <algorithm>

#include "stp/model/components.h"
#include "stp/model/partition.h"

namespace stp {
namespace {

Segment forward(const UnitOfChunk& of, bool recomputed) {
  const bool gathers = components(of.unit).front().kind == ComponentKind::norm;
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
  std::vector<UnitOfChunk> units = units_of_chunk(layers, {options.embedding, last, options.vision_layers});
  std::vector<Segment> chain;
  if (pass == Pass::F) {
    for (const UnitOfChunk& of : units) chain.push_back(forward(of, false));
    return chain;
  }
  std::ranges::reverse(units);
  for (auto at = units.begin(); at != units.end(); ++at) {
    const UnitOfChunk& of = *at;
    if (!has_pass(of.unit, UnitPass::I)) {  // it has only weight gradients
      if (pass != Pass::I) chain.push_back({of.unit, 0, Main::weight_gradients, false, Weights::none, true});
      continue;
    }
    if (options.recompute.whole(of.layer) && pass != Pass::W && ends_layer(of.unit)) {
      auto begin = std::find_if(at, units.end(), [&](const UnitOfChunk& one) {
        return one.layer != of.layer || !is_of_layer(one.unit);
      });
      while (begin != at) chain.push_back(forward(*--begin, true));
    }
    // Without early weight gradients both orders are equal.
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

std::vector<Segment> vocabulary_segments(Pass pass, Vocabulary vocabulary) {
  using Main = Segment::Main;
  using Weights = Segment::Weights;
  switch (pass) {
    case Pass::E:
      return {forward({Unit::embedding, 0}, false)};
    case Pass::G:
      return {{Unit::embedding, 0, Main::weight_gradients, false, Weights::none, true}};
    case Pass::S:
      if (vocabulary == Vocabulary::two_barriers) return {forward({Unit::head, 0}, false)};
      return {forward({Unit::head, 0}, false),
              {Unit::head, 0, Main::input_gradient, false, Weights::none, false}};
    case Pass::T:
      return {{Unit::head, 0, Main::input_gradient, false, Weights::both_behind, false}};
    default:
      return {{Unit::head, 0, Main::weight_gradients, false, Weights::none, false}};
  }
}

}  // namespace stp
