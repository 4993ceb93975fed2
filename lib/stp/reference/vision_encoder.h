// The reference's vision encoder: one image, float64.
#pragma once

#include <string>
#include <vector>

#include "stp/model/config.h"
#include "stp/reference/layers.h"
#include "stp/reference/units.h"

namespace stp::reference {

/// The forward of one image, with the tensors for its backward. Patches are embedded. Each layer adds
/// attention without mask, rotated by a patch's place in the image, and a GELU MLP; each reads a LayerNorm of
/// its input. The merger makes one token of the language model from kTokensMerged consecutive patches: a
/// LayerNorm of each, then two linear layers with GELU.
class VisionEncoder {
 public:
  /// `patches`: rows of kPatchElements values. The model and its parameters must outlive this.
  VisionEncoder(const ModelConfig& model, const Parameters& parameters, const std::vector<float>& patches);

  /// Returns rows of the language model's hidden size.
  Matrix forward();
  /// Adds the gradients of all parameters. `gradient` is the gradient of forward()'s result.
  void backward(const Matrix& gradient, Parameters& gradients);

 private:
  const ModelConfig encoder_;
  const Parameters& parameters_;
  const Units units_;
  const Matrix patches_;
  std::vector<Units::Attention> attentions_;
  std::vector<Units::Mlp> mlps_;  // by layer; the last is the merger's
};

}  // namespace stp::reference
