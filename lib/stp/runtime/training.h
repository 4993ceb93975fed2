// The description of a training run, but for its strategy, which is the Program's.
#pragma once

#include <cstdint>
#include <stdexcept>

#include "stp/device/kernels.h"
#include "stp/device/tensor.h"
#include "stp/model/config.h"
#include "stp/model/parameters.h"

namespace stp {

struct Training {
  ModelConfig model;
  int seq = 1, microbatch_size = 1;
  int vision_tokens = 0;    // per sample, in the model's vision encoder
  DType type = DType::f32;  // X in kernel_arguments.h: of weights, activations and their gradients
  Initialisation initialisation;
  AdamW optimizer;
  double clip_norm = 1;      // largest global gradient norm; larger gradients are scaled down to it
  bool record_times = true;  // of every op
  /// Initial values of a parameter repeat after this many elements; 0: never. For replays, whose values have
  /// no meaning: the host would need longer to make a rank's weights than the rank for its steps.
  int64_t initial_repeat = 0;

  /// The number of tokens that a sample's image becomes; they are the sample's first tokens.
  [[nodiscard]] int image_tokens() const { return vision_tokens / kTokensMerged; }
  /// The same training for the vision encoder's layers as a model.
  [[nodiscard]] Training of_encoder() const {
    Training encoder = *this;
    encoder.model = model.encoder();
    encoder.seq = vision_tokens;
    return encoder;
  }
};

/// With post-validation: the norm of a step's gradients is infinite or NaN. All ranks have undone the step;
/// training can continue with other samples.
class NotFinite : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// When an op ran, in seconds since the step's first op started.
struct OpTime {
  double start = 0, end = 0;
};

}  // namespace stp
