// The units that a model is divided into, a unit's passes, parts and saved tensors: names for the Program,
// the cost model and the runtime. What each unit consists of: components.h.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace stp {

/// A transformer layer is Attn and MLP (each with its Pre- unit: the norm), section 3 of the paper; the head
/// is the output projection with the loss, on the last virtual stage; the embedding, on the first, exists in
/// hardware scenarios only. A vision encoder, whose units come before the embedding, is its patch embedding,
/// its layers' vision_attn and vision_mlp, and the merger, which makes tokens of the language model.
enum class Unit : uint8_t { attn, mlp, head, embedding, patches, vision_attn, vision_mlp, merger };
inline constexpr std::array kUnits{Unit::attn,    Unit::mlp,         Unit::head,       Unit::embedding,
                                   Unit::patches, Unit::vision_attn, Unit::vision_mlp, Unit::merger};

/// The units of a layer, of the language model and of a vision encoder, in the order of the forward.
inline constexpr std::array kLayerUnits{Unit::attn, Unit::mlp};
inline constexpr std::array kVisionLayerUnits{Unit::vision_attn, Unit::vision_mlp};

/// Whether it is one of a vision encoder's units.
constexpr bool is_vision(Unit unit) { return unit >= Unit::patches; }
/// Whether it belongs to a layer, of which there are several.
constexpr bool is_of_layer(Unit unit) {
  return std::ranges::find(kLayerUnits, unit) != kLayerUnits.end() ||
         std::ranges::find(kVisionLayerUnits, unit) != kVisionLayerUnits.end();
}

/// Whether it is an attention, of either model.
constexpr bool is_attention(Unit unit) { return unit == Unit::attn || unit == Unit::vision_attn; }

/// F forward, I input gradient. A unit's weight gradients come in two parts: W_early, those of the
/// row-parallel linears (proj, fc2), and W_late, those of the column-parallel ones (QKV, fc1). In
/// Megatron-LM's order only W_late can overlap the unit's own all-reduce.
enum class UnitPass : uint8_t { F, I, W_early, W_late };
inline constexpr std::array kUnitPasses{UnitPass::F, UnitPass::I, UnitPass::W_early, UnitPass::W_late};

/// Whether the unit has that pass: those of one linear layer or table have no early part of weight gradients,
/// and samples have no gradient.
constexpr bool has_pass(Unit unit, UnitPass pass) {
  if (unit == Unit::embedding || unit == Unit::patches)
    return pass == UnitPass::F || pass == UnitPass::W_late;
  return pass != UnitPass::W_early || unit != Unit::head;
}
/// Whether a collective of the tensor-parallel group follows F, or I.
constexpr bool is_reduced(Unit unit, UnitPass pass) {
  if (unit == Unit::head || unit == Unit::patches) return false;  // the head's own are inside it
  return pass == UnitPass::F || (pass == UnitPass::I && has_pass(unit, pass));
}

/// Parts of F and I of attn and mlp, where something divides them (Division in work.h): what is before the
/// core (in F the first linear layer, for attn with rotary; in I the second's input gradient), the core
/// (attention; activation), and what is behind it (in F the second linear layer; in I the first's input
/// gradient). The norm of F is a part of its own where steps of `before` overlap its gathering.
enum class UnitPart : uint8_t { whole, norm, before, core, after };
/// "", "_norm", "_before", "_core", "_after"
std::string suffix(UnitPart part);

/// A tensor that a forward keeps for the backward, or that I makes for W. Which of them a unit has:
/// saved_tensors() in work.h. Units that are not the suite's own have some that the runtime never makes.
enum class Saved : uint8_t {
  patches,  // of the embedding of patches
  // The norm's.
  norm_input,
  norm_input_fp32,
  normalised_input,
  norm_statistics,
  dropout_mask,
  norm_output,
  // Attention's.
  qkv,
  attention_output,  // of this rank's rows: the projection's input
  core_output,       // with an all-to-all: the same as the core makes it
  log_sum_exp,
  softmax,
  softmax_mask,
  softmax_after_dropout,
  // The MLP's and the merger's.
  fc1_output,  // gated: gate and up
  gate_fp32,
  activated_gate,
  activation,
  // The head's.
  softmax_fp32,
  logits_gradient,
  // Made by I.
  inner_gradient,   // of the first linear layer's output: of q, k and v, or of fc1's
  output_gradient,  // of the unit's output
};
inline constexpr size_t kSavedTensors = static_cast<size_t>(Saved::output_gradient) + 1;

/// For messages: "norm input".
std::string to_string(Saved tensor);

std::string to_string(Unit unit);
/// As in cost tables: "attn.F", "mlp.W_early", and "mlp.W" for W_late.
std::string to_string(Unit unit, UnitPass pass);

}  // namespace stp
