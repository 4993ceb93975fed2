// The reference's vision encoder: one image, float64.
#pragma once

#include <string>
#include <vector>

#include "stp/model/config.h"
#include "stp/reference/layers.h"
#include "stp/reference/transformer.h"

namespace stp::reference {

/// The forward of one image, with all that its backward needs. Patches are embedded; each layer adds
/// attention without mask, rotated by a patch's place in the image, and an MLP with GELU, each of a LayerNorm
/// of its input; the merger makes of each kTokensMerged patches, one after the other, one token of the
/// language model: a LayerNorm of each, two linear layers with GELU.
class VisionEncoder {
 public:
  /// `patches`: rows of kPatchElements values. The model and its parameters must outlive this.
  VisionEncoder(const ModelConfig& model, const Parameters& parameters, const std::vector<float>& patches);

  /// Rows of the language model's hidden size.
  Matrix forward();
  /// Adds the gradients of all parameters, given that of forward()'s result.
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
  std::vector<Mlp> mlps_;  // by layer, then the merger's
};

}  // namespace stp::reference
