// Pass 1, units: an action on a chunk of L layers becomes a chain of segments (docs/architecture.md, section
// 5).
#pragma once

#include <vector>

#include "stp/model/strategy.h"
#include "stp/model/unit.h"
#include "stp/schedule/vocabulary.h"

namespace stp {

/// When a full backward's weight gradients run. `suite`: both parts overlap the segment's all-reduce.
/// `megatron`: the early part runs before it and only the late part overlaps it, as in Megatron-LM, whose
/// row-parallel linears have no all-reduce in their backward.
enum class BackwardOrder { suite, megatron };

/// One link of a chain: a compute op, optionally its all-reduce, and optionally weight gradients that may
/// overlap the all-reduce.
struct Segment {
  Unit unit;
  int16_t layer;
  enum class Main : uint8_t { forward, input_gradient, weight_gradients } main;
  bool all_reduce;  // a reduce-scatter with sequence parallelism
  enum class Weights : uint8_t { none, both_behind, early_before_late_behind } weights;
  /// Whether its input needs all rows: with sequence parallelism an all-gather comes before it.
  bool gathers;
  /// A forward that a backward recomputes from the layer's input.
  bool recomputed = false;
};

/// F, I or W_late.
UnitPass pass_of(const Segment& segment);

struct ChainOptions {
  bool embedding = false;    // the chunk begins with the embedding (first virtual stage)
  Recompute recompute = {};  // of layers: I and B recompute a layer's forward before its backward
  int vision_layers = 0;     // layers of the vision encoder before the embedding; 0: none
};

/// The chain of `pass` over `layers` layers, with the head if the chunk is the `last` virtual stage.
std::vector<Segment> segments(Pass pass, int layers, bool last, BackwardOrder order,
                              ChainOptions options = {});
/// The chain of a pass of the vocabulary, which is one rank's share of it.
std::vector<Segment> vocabulary_segments(Pass pass, Vocabulary vocabulary);

}  // namespace stp
