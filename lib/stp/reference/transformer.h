// A plain reference transformer: one rank, float64, no schedule, no blocking, no BLAS. Written from the
// formulas, independently of the runtime's kernels; clarity before speed. A vision encoder before it:
// vision_encoder.h.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "stp/model/config.h"
#include "stp/model/parameters.h"

namespace stp::reference {

/// Full row-major matrices by parameter_name(): "layers.3.attn.q.weight".
using Parameters = std::map<std::string, std::vector<double>>;

Parameters initial_parameters(const ModelConfig& model, const Initialisation& initialisation);

/// A sequence, and the target token after each of its tokens. With a vision encoder, `patches` has rows of
/// kPatchElements values; what they become stands in place of the first tokens.
struct Sample {
  std::vector<int32_t> tokens, targets;
  std::vector<float> patches = {};
};

struct LossAndGradients {
  double loss;           // mean cross-entropy over all tokens of all samples, natural logarithm
  Parameters gradients;  // of that mean
};
LossAndGradients loss_and_gradients(const ModelConfig& model, const Parameters& parameters,
                                    const std::vector<Sample>& samples);

/// The square root of the sum of all squares.
double global_norm(const Parameters& gradients);

struct AdamWOptions {
  double learning_rate, beta1, beta2, epsilon, weight_decay, max_norm;
};
struct AdamWState {
  int step = 0;
  Parameters first, second;  // moments; empty before the first step
};
/// Gradients are scaled down to a global norm of max_norm; every parameter decays by learning_rate ·
/// weight_decay; then it moves by learning_rate · m̂ / (√v̂ + epsilon).
void adamw_step(const AdamWOptions& options, const Parameters& gradients, Parameters& parameters,
                AdamWState& state);

}  // namespace stp::reference
