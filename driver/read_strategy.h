// Reads and checks a configuration's division of its model: `parallel` and the options beside it.
#pragma once

#include "scenario.h"

namespace stp {

/// Reads `parallel`, `zero`, `post_validation` and `offload`, which every configuration may have.
void read_strategy(JsonInput& input, Experiment& experiment);
/// Reads `sequence_parallel`, `recompute` and `tp_overlap`, which need a model. Checks them, and context
/// parallelism, against the model and its `seq` tokens per sample.
void read_strategy_of_units(JsonInput& input, Experiment& experiment, const ModelConfig& model, int seq);

}  // namespace stp
