// Memory traffic and launches of components, beside GEMMs and attention, by implementation. Private to this
// module.
#pragma once

#include "stp/model/components.h"

namespace stp {

/// A component's memory traffic in F and in I, in reads and writes of whole tensors of its width (an fp32
/// tensor counts twice), and its launches.
struct Elementwise {
  double forward = 0, backward = 0;
  int forward_kernels = 0, backward_kernels = 0;
};
Elementwise elementwise(const ModelConfig& model, Implementation implementation, ComponentKind kind);

}  // namespace stp
