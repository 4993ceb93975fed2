// The saved tensors of a chunk that are offloaded to the host: one list for cost model and executor.
#pragma once

#include <vector>

#include "stp/model/work.h"

namespace stp {

struct OffloadedTensor {
  int layer;  // of the chunk
  Unit unit;
  SavedTensor tensor;
};

/// Returns the offloaded tensors of a chunk of `layers` layers, per microbatch: whole tensors that forwards
/// of attention and MLP keep. A tensor is taken, in order, if it still fits into `ratio` (0 to 1) of all
/// bytes.
std::vector<OffloadedTensor> offloaded_tensors(const ModelConfig& model, const Shape& shape,
                                               Implementation implementation, int layers, double ratio);

/// The bytes of offloaded_tensors(), by virtual stage.
std::vector<double> offloaded_bytes(const ModelConfig& model, const Shape& shape,
                                    Implementation implementation, const std::vector<int>& layers_per_stage,
                                    double ratio);

}  // namespace stp
