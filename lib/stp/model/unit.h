// The units that a model is divided into, and the passes of a unit, as programs, costs and kernels use them.
#pragma once

#include <array>
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

/// Whether it is one of a vision encoder's units.
constexpr bool is_vision(Unit unit) { return unit >= Unit::patches; }
/// Whether it belongs to a layer, of which there are several.
constexpr bool is_of_layer(Unit unit) {
  return unit == Unit::attn || unit == Unit::mlp || unit == Unit::vision_attn || unit == Unit::vision_mlp;
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

std::string to_string(Unit unit);
/// As in cost tables: "attn.F", "mlp.W_early", and "mlp.W" for W_late.
std::string to_string(Unit unit, UnitPass pass);

}  // namespace stp
