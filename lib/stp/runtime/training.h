// The description of a training run, and the data of its steps.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <vector>

#include "stp/cluster/rank_grid.h"
#include "stp/device/kernels.h"
#include "stp/device/tensor.h"
#include "stp/model/config.h"
#include "stp/model/parameters.h"

namespace stp {

struct Training {
  ModelConfig model;
  int seq = 1, microbatch_size = 1;
  DType type = DType::f32;  // X of lib/stp/device/kernels.h: of weights, activations and their gradients
  RankGrid grid;
  Initialisation initialisation;
  AdamW optimizer;
  double clip_norm = 1;      // largest global gradient norm; larger gradients are scaled down to it
  bool record_times = true;  // of every op
  /// After how many elements a parameter's initial values repeat; 0: never. For replays, whose values mean
  /// nothing: the host would take longer to make a rank's weights than the rank for its steps.
  int64_t initial_repeat = 0;

  /// Of a sample, and of a microbatch, on one context-parallel rank.
  [[nodiscard]] int own_seq() const { return seq / grid.cp; }
  [[nodiscard]] int64_t tokens() const { return int64_t{microbatch_size} * own_seq(); }
};

/// A sequence of `seq` tokens, and the target token after each.
struct TokenSample {
  std::vector<int32_t> tokens, targets;
};

/// With post-validation: the norm of a step's gradients is infinite or NaN. The step was undone, on all
/// ranks; training can go on with other samples.
class NotFinite : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// When an op ran, in seconds since the step's first op started.
struct OpTime {
  double start = 0, end = 0;
};

}  // namespace stp
