// The components of each unit, in the order of the forward: a table, from which the functions of work.h
// derive the work of a unit and of its parts, and its saved tensors. A new kind of unit is one table, and the
// rows of kElementwise in work.cc for kinds of components that no other unit has.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "stp/model/work.h"

namespace stp {

enum class ComponentKind : uint8_t {
  norm,
  linear,
  split,   // the bias of q, k and v, and their splitting
  rotary,  // of q and k
  core,    // of an attention, between its two linear layers
  join,    // of the heads
  activation,
  residual,  // with the dropout before it; the suite adds 1/t of it in the second linear layer, before the
             // all-reduce
  loss,
  lookup,  // in a table, of which each rank has some rows
};
inline constexpr size_t kComponentKinds = static_cast<size_t>(ComponentKind::lookup) + 1;

/// Widths of a rank's tensors, in elements per token; of the merger per merged token.
enum class Width : uint8_t {
  hidden,      // of the unit's input, for all tokens
  own_hidden,  // the same with sequence parallelism: of this rank's share of the tokens
  statistics,  // of a norm, for that share
  output,      // of the unit's output
  q,
  kv,  // of k, or of v
  q_and_k,
  qkv,
  heads,
  scores,
  fc1,  // gated: gate and up
  ffn,
  vocabulary,
  patch,
};
inline constexpr size_t kWidths = static_cast<size_t>(Width::patch) + 1;

/// A tensor that F keeps.
struct Kept {
  enum class Type : uint8_t { activation, fp32_at_least, byte };
  Saved which;
  Width width;
  UnitPass until = UnitPass::I;  // the last pass that reads it
  Type type = Type::activation;
  bool dropped = true;  // by F, where I recomputes the component
};

/// The weights of a linear layer or table.
struct TrainedWeights {
  std::optional<Saved> input;     // none: tokens
  Width input_width;              // with the component's width, the size of the GEMM
  std::optional<Saved> gradient;  // of the output, which I makes; none: the unit's own, as it comes
  UnitPass pass;                  // which makes their gradient
  enum class Bias : uint8_t { none, encoder, all } bias;  // encoder: in a vision encoder alone
  uint8_t parameter, bias_parameter;                      // places in unit_parameters()

  [[nodiscard]] bool has_bias(const ModelConfig& model) const {
    return bias == Bias::all || (bias == Bias::encoder && model.family == Family::vit);
  }
};

/// What divides it: sequence parallelism the tokens, if its width is own_hidden, else tensor parallelism its
/// width; tp_overlap a linear layer by rows in the part before the core and by columns of its output in F's
/// part after it; context parallelism a core by steps of a ring or by heads (Division::steps).
struct Component {
  ComponentKind kind;
  UnitPart part;                     // of F; I has the parts in reverse order. whole: the unit has no parts
  Width width;                       // of the tensor that it makes
  bool Recompute::*again = nullptr;  // what has I run it again
  std::span<const Kept> keeps = {};  // some of them by some implementations alone
  const TrainedWeights* weights = nullptr;

  [[nodiscard]] bool recomputed(const Recompute& recompute) const {
    return again != nullptr && recompute.*again;
  }
  /// The part that it is in, where `division` divides the unit.
  [[nodiscard]] UnitPart part_of(UnitPass pass, const Division& division) const;
};

/// In the order of the forward. The layers of a vision encoder are those of a language model.
std::span<const Component> components(Unit unit);

/// The first of that kind, or null.
const Component* find_component(Unit unit, ComponentKind kind);

}  // namespace stp
