#include "stp/program/units.h"

namespace stp {

std::vector<Segment> segments(Pass pass, int layers, bool last, BackwardOrder order, ChainOptions options) {
  using Main = Segment::Main;
  using Weights = Segment::Weights;
  std::vector<Segment> chain;
  const auto forward = [&](int layer, bool recomputed) {
    for (const Unit unit : {Unit::attn, Unit::mlp})
      chain.push_back(
          {unit, static_cast<int16_t>(layer), Main::forward, true, Weights::none, true, recomputed});
  };
  if (pass == Pass::F) {
    if (options.embedding) chain.push_back({Unit::embedding, 0, Main::forward, true, Weights::none, false});
    for (int layer = 0; layer < layers; ++layer) forward(layer, false);
    if (last) chain.push_back({Unit::head, 0, Main::forward, false, Weights::none, true});
    return chain;
  }
  const bool input_gradients = pass != Pass::W;
  const Main main = input_gradients ? Main::input_gradient : Main::weight_gradients;
  Weights weights = Weights::none;
  if (pass == Pass::B)
    weights = order == BackwardOrder::suite ? Weights::both_behind : Weights::early_before_late_behind;
  // The head's weight gradient has no early part: with either order it follows its input gradient.
  const Weights head_weights = pass == Pass::B ? Weights::both_behind : Weights::none;
  if (last) chain.push_back({Unit::head, 0, main, false, head_weights, false});
  for (int layer = layers - 1; layer >= 0; --layer) {
    if (options.recompute && input_gradients) forward(layer, true);
    for (const Unit unit : {Unit::mlp, Unit::attn})
      chain.push_back({unit, static_cast<int16_t>(layer), main, input_gradients, weights, input_gradients});
  }
  if (options.embedding && pass != Pass::I)
    chain.push_back({Unit::embedding, 0, Main::weight_gradients, false, Weights::none, true});
  return chain;
}

}  // namespace stp
