// The units of a model, their passes and parts: names for the Program, the cost model and the runtime.
// components.h lists what each unit consists of.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>

namespace stp {

/// A transformer layer is Attn and MLP (section 3 of the paper), each with its Pre- unit, the norm. The head
/// is the output projection with the loss, on the last virtual stage. The embedding is on the first, in
/// hardware scenarios only. A vision encoder comes before the embedding: the embedding of patches, its
/// layers' vision_attn and vision_mlp, and the merger, which makes tokens of the language model.
enum class Unit : uint8_t { attn, mlp, head, embedding, patches, vision_attn, vision_mlp, merger };
inline constexpr std::array kUnits{Unit::attn,    Unit::mlp,         Unit::head,       Unit::embedding,
                                   Unit::patches, Unit::vision_attn, Unit::vision_mlp, Unit::merger};

/// The units of one layer, in the order of the forward.
inline constexpr std::array kLayerUnits{Unit::attn, Unit::mlp};
inline constexpr std::array kVisionLayerUnits{Unit::vision_attn, Unit::vision_mlp};

/// Whether the unit belongs to a vision encoder.
constexpr bool is_vision(Unit unit) { return unit >= Unit::patches; }
/// Whether the unit belongs to a layer.
constexpr bool is_of_layer(Unit unit) {
  return std::ranges::find(kLayerUnits, unit) != kLayerUnits.end() ||
         std::ranges::find(kVisionLayerUnits, unit) != kVisionLayerUnits.end();
}

/// Whether a layer begins, or ends, with the unit.
constexpr bool begins_layer(Unit unit) { return unit == kLayerUnits.front(); }
constexpr bool ends_layer(Unit unit) { return unit == kLayerUnits.back(); }

/// Whether the unit is an attention, of either model.
constexpr bool is_attention(Unit unit) { return unit == Unit::attn || unit == Unit::vision_attn; }

/// F forward, I input gradient. A unit's weight gradients have two parts: W_early for the row-parallel
/// linears (proj, fc2), W_late for the column-parallel linears (QKV, fc1). In Megatron-LM's order only W_late
/// can overlap the unit's own all-reduce.
enum class UnitPass : uint8_t { F, I, W_early, W_late };
inline constexpr std::array kUnitPasses{UnitPass::F, UnitPass::I, UnitPass::W_early, UnitPass::W_late};

/// Whether the unit has that pass. Units with only one linear layer or table have no W_early. Embedding and
/// patches have no I: their inputs have no gradient.
constexpr bool has_pass(Unit unit, UnitPass pass) {
  if (unit == Unit::embedding || unit == Unit::patches)
    return pass == UnitPass::F || pass == UnitPass::W_late;
  return pass != UnitPass::W_early || unit != Unit::head;
}
/// Whether a collective of the tensor-parallel group follows the unit's F or I.
constexpr bool is_reduced(Unit unit, UnitPass pass) {
  if (unit == Unit::head || unit == Unit::patches) return false;  // the head's collectives are inside it
  return pass == UnitPass::F || (pass == UnitPass::I && has_pass(unit, pass));
}

/// Parts of F and I of attn and mlp, if something divides them (Strategy::divides). Before the core: in
/// F the first linear layer, for attn with rotary; in I the second's input gradient. The core: attention or
/// activation. After the core: in F the second linear layer; in I the first's input gradient. F's norm is a
/// part of its own if steps of `before` overlap its gathering.
enum class UnitPart : uint8_t { whole, norm, before, core, after };
/// "", "_norm", "_before", "_core", "_after"
std::string suffix(UnitPart part);

std::string to_string(Unit unit);
/// The name in cost tables: "attn.F", "mlp.W_early", and "mlp.W" for W_late.
std::string to_string(Unit unit, UnitPass pass);

}  // namespace stp
