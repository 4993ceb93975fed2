// A table of all schedules at one p and m, with counted figures.
#pragma once

#include <string>

#include "stp/cost/cost_table.h"

namespace stp {

/// The unit costs for comparing schedules and validating files: F = I = W = 1 a layer, halved over attention
/// and MLP; with `all_reduces`, 0.25 of them per layer and direction.
CostTable reference_costs(bool all_reduces);

/// A Markdown table of all generators at `pp` ranks and `microbatches`, counted on programs of the same
/// model: 2p layers of F = I = W = 1 (halved over attention and MLP), so a chunk of v = 1 holds two of them.
/// Columns: the bubble (step − one rank's compute) without all-reduces; what all-reduces of 0.25 per layer
/// and direction add to the step, in units of 0.25; the largest peak of activations until W and until I, in
/// microbatches of one layer; transfers per microbatch; receives ahead; range; what it is. A schedule that
/// does not support p and m has the reason.
std::string schedule_table(int pp, int microbatches);

}  // namespace stp
