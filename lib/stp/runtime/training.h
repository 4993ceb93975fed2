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
  int vision_tokens = 0;    // of a sample, in the model's vision encoder
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
  /// What a sample's image becomes: its first tokens.
  [[nodiscard]] int image_tokens() const { return vision_tokens / kTokensMerged; }
  /// The same for the layers of the vision encoder, as if they were a model of their own.
  [[nodiscard]] Training of_encoder() const {
    Training encoder = *this;
    encoder.model = model.encoder();
    encoder.seq = vision_tokens;
    return encoder;
  }
};

/// A sequence of `seq` tokens, and the target token after each. With a vision encoder, also vision_tokens ·
/// kPatchElements values of an image's patches; its first image_tokens() tokens are then not read: those of
/// the image stand in their place.
struct TokenSample {
  std::vector<int32_t> tokens, targets;
  std::vector<float> patches = {};
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
