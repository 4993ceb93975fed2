#include "stp/model/offload.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <map>

namespace stp {
namespace {

// The tensors of one unit that the forward keeps for the backward. With full recomputation it is only the
// input of the layer, the first of the attention's tensors.
std::vector<SavedTensor> kept_tensors(const ModelConfig& model, const Shape& shape,
                                      Implementation implementation, Unit unit, bool recomputed) {
  if (recomputed) {
    if (!begins_layer(unit)) return {};
    const double rows = shape.strategy.sequence_parallel ? 1.0 / shape.strategy.tp : 1.0;
    return {{.which = Saved::norm_input,
             .bytes = rows * hidden_bytes(model, shape),
             .weight_gradient = false,
             .made_by_forward = true}};
  }
  std::vector<SavedTensor> kept;
  const auto all = saved_tensors(model, shape, implementation, unit);
  std::copy_if(all.begin(), all.end(), std::back_inserter(kept),
               [](const SavedTensor& tensor) { return tensor.made_by_forward; });
  return kept;
}

}  // namespace

std::vector<OffloadedTensor> offloaded_tensors(const ModelConfig& model, const Shape& shape,
                                               Implementation implementation, int layers, double ratio) {
  std::array<std::vector<OffloadedTensor>, 2> of_layer;  // one that is not recomputed, one that is
  for (const bool recomputed : {false, true})
    for (const Unit unit : kLayerUnits)
      for (const SavedTensor& tensor : kept_tensors(model, shape, implementation, unit, recomputed))
        of_layer[recomputed].push_back({0, unit, tensor});
  std::vector<OffloadedTensor> all;
  double bytes = 0;
  for (int layer = 0; layer < layers; ++layer)
    for (OffloadedTensor tensor : of_layer[shape.strategy.recompute.whole(layer)]) {
      tensor.layer = layer;
      bytes += tensor.tensor.bytes;
      all.push_back(tensor);
    }
  std::vector<OffloadedTensor> chosen;
  double taken = 0;
  for (const OffloadedTensor& each : all) {
    if (taken + each.tensor.bytes > ratio * bytes) continue;
    taken += each.tensor.bytes;
    chosen.push_back(each);
  }
  return chosen;
}

std::vector<double> offloaded_bytes(const ModelConfig& model, const Shape& shape,
                                    Implementation implementation, const std::vector<int>& layers_per_stage,
                                    double ratio) {
  std::map<int, double> by_layers;
  std::vector<double> by_stage;
  for (const int layers : layers_per_stage) {
    const auto [found, is_new] = by_layers.try_emplace(layers);
    if (is_new)
      for (const OffloadedTensor& each : offloaded_tensors(model, shape, implementation, layers, ratio))
        found->second += each.tensor.bytes;
    by_stage.push_back(found->second);
  }
  return by_stage;
}

}  // namespace stp
