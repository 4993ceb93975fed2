// Pass 1, units: an action on a chunk of L layers becomes a chain of segments (docs/architecture.md, section
// 5).
#pragma once

#include <vector>

#include "stp/model/unit.h"
#include "stp/schedule/action.h"

namespace stp {

/// Where a full backward's weight gradients run: `suite` behind the segment's all-reduce, both parts
/// together; `megatron` the early part before it and only the late part behind it, as in
/// Megatron-LM, whose row-parallel linears have no all-reduce in their backward.
enum class BackwardOrder { suite, megatron };

/// One link of a chain: a compute op, then perhaps its all-reduce, then perhaps weight gradients that may run
/// behind it.
struct Segment {
  Unit unit;
  int16_t layer;
  enum class Main : uint8_t { forward, input_gradient, weight_gradients } main;
  bool all_reduce;  // with sequence parallelism a reduce-scatter
  enum class Weights : uint8_t { none, both_behind, early_before_late_behind } weights;
  /// Whether it needs its input whole: with sequence parallelism an all-gather stands before it.
  bool gathers;
  /// A forward that a backward runs again, from the layer's input.
  bool recomputed = false;
};

struct ChainOptions {
  bool embedding = false;  // whether the chunk begins with it: the first virtual stage, where it is modelled
  bool recompute = false;  // whether I and B run each layer's forward again before its backward
};

/// The chain of `pass` over `layers` layers, with the head if the chunk is the `last` virtual stage.
std::vector<Segment> segments(Pass pass, int layers, bool last, BackwardOrder order,
                              ChainOptions options = {});

}  // namespace stp
