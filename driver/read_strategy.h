// Reads and checks how a configuration divides its model: `parallel` and the options beside it.
#pragma once

#include "scenario.h"

namespace stp {

/// `parallel`, `zero`, `post_validation` and `offload`, which every configuration may have.
void read_strategy(JsonInput& input, Experiment& experiment);
/// `sequence_parallel`, `recompute` and `tp_overlap`, which need a model; checks them, and context
/// parallelism, against the model and its `seq` tokens a sample.
void read_strategy_of_units(JsonInput& input, Experiment& experiment, const ModelConfig& model, int seq);

}  // namespace stp
