// Criteria of runs in bf16: gradients are as near to the exact ones as those of one rank, and the optimizer
// accumulates in f32.
#pragma once

#include "stp/device/bfloat16.h"
#include "support/training.h"

namespace stp::testing_support {

/// The gradients of the same training by `tp` ranks: no pipeline, no replicas, one microbatch after the
/// other.
inline std::map<std::string, std::vector<double>> gradients_without_pipeline(
    GridTraining training, int tp, const std::vector<TokenSample>& samples) {
  training.grid = {.tp = tp};
  const auto backend = cpu::make_backend({.world_size = tp});
  const int microbatches = static_cast<int>(samples.size()) / training.microbatch_size;
  Trainer trainer(*backend, program_of("1f1b", training.grid, microbatches, training.model.layers), training);
  trainer.step(samples);
  return trainer.gradients();
}

/// As `stp run` judges it: docs/metrics.md.
inline bool bf16_parity(double gradient_error, double one_rank_error) {
  return gradient_error <= 2 * one_rank_error && gradient_error < 0.5;
}

inline double rounded(double value) { return Bfloat16(static_cast<float>(value)); }

/// The share of elements that bf16 could hold, zeros left out: 2⁻¹⁶ or so of sums in f32, all of what was
/// rounded.
inline double share_in_bf16(const std::map<std::string, std::vector<double>>& tensors) {
  double held = 0, all = 0;
  for (const auto& [name, values] : tensors)
    for (const double value : values) {
      if (value == 0) continue;
      held += value == rounded(value);
      ++all;
    }
  return held / all;
}

/// a − b, tensor by tensor.
inline reference::Parameters difference(reference::Parameters a, const reference::Parameters& b) {
  for (auto& [name, values] : a)
    for (size_t i = 0; i < values.size(); ++i) values[i] -= b.at(name)[i];
  return a;
}

}  // namespace stp::testing_support
