#include "stp/reference/vision_encoder.h"

namespace stp::reference {
namespace {

// The part of a layer as parameter_name() has it.
std::string unit_name(int layer, const char* unit) {
  return "vision.layers." + std::to_string(layer) + "." + unit;
}
constexpr const char *kPatches = "vision.patches.weight", *kMerger = "vision.merger";

}  // namespace

VisionEncoder::VisionEncoder(const ModelConfig& model, const Parameters& parameters,
                             const std::vector<float>& patches)
    : encoder_(model.encoder()),
      parameters_(parameters),
      units_(encoder_, parameters),
      patches_(patches.begin(), patches.end()) {}

Matrix VisionEncoder::forward() {
  attentions_.resize(encoder_.layers);
  mlps_.resize(encoder_.layers + 1);
  Matrix x = linear(patches_, parameters_.at(kPatches), kPatchElements, encoder_.hidden);
  for (int layer = 0; layer < encoder_.layers; ++layer) {
    x = plus(units_.attention_forward(unit_name(layer, "attn"), attentions_[layer], x), x);
    x = plus(units_.mlp_forward(unit_name(layer, "mlp"), mlps_[layer], x), x);
  }
  return units_.mlp_forward(kMerger, mlps_.back(), x);
}

void VisionEncoder::backward(const Matrix& gradient, Parameters& gradients) {
  Matrix d = units_.mlp_backward(kMerger, mlps_.back(), gradient, gradients);
  for (int layer = encoder_.layers - 1; layer >= 0; --layer) {
    d = plus(units_.mlp_backward(unit_name(layer, "mlp"), mlps_[layer], d, gradients), d);
    d = plus(units_.attention_backward(unit_name(layer, "attn"), attentions_[layer], d, gradients), d);
  }
  linear_backward(d, patches_, parameters_.at(kPatches), kPatchElements, encoder_.hidden,
                  gradients.at(kPatches));
}

}  // namespace stp::reference
