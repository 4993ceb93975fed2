// The optimizer that weights after steps are checked against.
#pragma once

#include <cmath>

#include "stp/reference/transformer.h"

namespace stp::reference {

/// The square root of the sum of all squares.
inline double global_norm(const Parameters& gradients) {
  double sum = 0;
  for (const auto& [name, values] : gradients)
    for (const double value : values) sum += value * value;
  return std::sqrt(sum);
}

struct AdamWOptions {
  double learning_rate, beta1, beta2, epsilon, weight_decay, max_norm;
};
struct AdamWState {
  int step = 0;
  Parameters first, second;  // moments; empty before the first step
};
/// Gradients are scaled down to a global norm of max_norm; every parameter decays by learning_rate ·
/// weight_decay; then it moves by learning_rate · m̂ / (√v̂ + epsilon).
inline void adamw_step(const AdamWOptions& options, const Parameters& gradients, Parameters& parameters,
                       AdamWState& state) {
  const int step = ++state.step;
  const double norm = global_norm(gradients), scale = norm > options.max_norm ? options.max_norm / norm : 1;
  for (auto& [name, values] : parameters) {
    std::vector<double>&first = state.first[name], &second = state.second[name];
    first.resize(values.size());
    second.resize(values.size());
    for (size_t i = 0; i < values.size(); ++i) {
      const double g = scale * gradients.at(name)[i];
      first[i] = options.beta1 * first[i] + (1 - options.beta1) * g;
      second[i] = options.beta2 * second[i] + (1 - options.beta2) * g * g;
      const double mean = first[i] / (1 - std::pow(options.beta1, step));
      const double square = second[i] / (1 - std::pow(options.beta2, step));
      values[i] -= options.learning_rate *
                   (options.weight_decay * values[i] + mean / (std::sqrt(square) + options.epsilon));
    }
  }
}

}  // namespace stp::reference
