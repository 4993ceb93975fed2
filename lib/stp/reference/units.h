// The reference's norms, attentions and MLPs, of a language model or of its vision encoder.
#pragma once

#include <string>

#include "stp/model/config.h"
#include "stp/reference/layers.h"
#include "stp/reference/transformer.h"

namespace stp::reference {

/// The units of one model, of one sample at a time. A unit's parameters are called `unit` and what they are:
/// "layers.3.attn" has "layers.3.attn.q.weight". Biases are added where there are parameters of their names.
/// Forwards keep what backwards read; backwards add the gradients of parameters. Residuals are the caller's.
class Units {
 public:
  /// Both must outlive this.
  Units(const ModelConfig& model, const Parameters& parameters);

  struct Norm {
    Matrix input, output;
  };
  struct Attention {
    Norm norm, q_norm, k_norm;  // of q and k by heads, if the model has them
    Matrix q, k, v, weights, attended;
  };
  struct Mlp {
    Norm norm;
    Matrix inner, up, activation;  // `up` if the MLP is gated; `inner` is then the gate
  };

  Matrix norm_forward(const std::string& unit, Norm& of, const Matrix& x) const;
  Matrix norm_backward(const std::string& unit, const Norm& of, const Matrix& dy,
                       Parameters& gradients) const;
  Matrix attention_forward(const std::string& unit, Attention& of, const Matrix& x) const;
  Matrix attention_backward(const std::string& unit, const Attention& of, const Matrix& dy,
                            Parameters& gradients) const;
  /// The first matrix may take several of the norm's rows as one, as a merger's does.
  Matrix mlp_forward(const std::string& unit, Mlp& of, const Matrix& x) const;
  Matrix mlp_backward(const std::string& unit, const Mlp& of, const Matrix& dy, Parameters& gradients) const;

 private:
  [[nodiscard]] const Matrix& weight(const std::string& name) const { return parameters_.at(name); }
  // A linear layer's outputs: as many as biases, if it has them.
  [[nodiscard]] int64_t outputs(const std::string& name, int64_t otherwise) const;
  [[nodiscard]] Matrix project(const std::string& name, const Matrix& x, int64_t otherwise) const;
  Matrix project_backward(const std::string& name, const Matrix& dy, const Matrix& x, int64_t otherwise,
                          Parameters& gradients) const;
  [[nodiscard]] double activate(double x) const;
  [[nodiscard]] double derivative(double x) const;

  const ModelConfig& model_;
  const Parameters& parameters_;
  const Heads heads_;
  const int64_t q_, kv_;
};

}  // namespace stp::reference
