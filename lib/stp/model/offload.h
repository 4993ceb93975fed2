// Which saved tensors of a chunk are offloaded to the host. Declared once, for the cost model and the
// executor.
#pragma once

#include <vector>

#include "stp/model/work.h"

namespace stp {

struct OffloadedTensor {
  int layer;  // of the chunk
  Unit unit;
  SavedTensor tensor;
};

/// Of a chunk of `layers` layers, for one microbatch: whole tensors that the forwards of attention and MLP
/// keep, in their order, each that still fits into `ratio` (0 to 1) of the bytes of all.
std::vector<OffloadedTensor> offloaded_tensors(const ModelConfig& model, const Shape& shape,
                                               Implementation implementation, int layers, double ratio);

/// Their bytes.
double offloaded_bytes(const ModelConfig& model, const Shape& shape, Implementation implementation,
                       int layers, double ratio);

}  // namespace stp
