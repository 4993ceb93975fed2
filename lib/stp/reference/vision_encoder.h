// The reference's vision encoder: one image, float64.
#pragma once

#include <string>
#include <vector>

#include "stp/model/config.h"
#include "stp/reference/layers.h"
#include "stp/reference/transformer.h"

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
  struct Norm {
    Matrix input, output;
  };
  struct Attention {
    Norm norm;
    Matrix q, k, v, weights, attended;
  };
  struct Mlp {
    Norm norm;
    Matrix inner, activation;
  };

  [[nodiscard]] const Matrix& weight(const std::string& name) const { return parameters_.at(name); }
  Matrix norm_forward(const std::string& unit, Norm& norm, const Matrix& x);
  Matrix norm_backward(const std::string& unit, const Norm& norm, const Matrix& dy, Parameters& gradients);
  Matrix attention_forward(const std::string& unit, Attention& of, const Matrix& x);
  Matrix attention_backward(const std::string& unit, const Attention& of, const Matrix& dy,
                            Parameters& gradients);
  Matrix mlp_forward(const std::string& unit, Mlp& of, const Matrix& x);
  Matrix mlp_backward(const std::string& unit, const Mlp& of, const Matrix& dy, Parameters& gradients);

  const Parameters& parameters_;
  const ModelConfig encoder_;
  const Matrix patches_;
  const int64_t d_;
  const Heads heads_;
  std::vector<Attention> attentions_;
  std::vector<Mlp> mlps_;  // by layer; the last is the merger's
};

}  // namespace stp::reference
