// The units that a model is divided into, and the passes of a unit, as programs, costs and kernels use them.
#pragma once

#include <array>
#include <cstdint>
#include <string>

namespace stp {

/// A transformer layer is Attn and MLP (each with its Pre- unit: the norm), section 3 of the paper; the head
/// is the output projection with the loss, on the last virtual stage; the embedding, on the first, exists in
/// hardware scenarios only.
enum class Unit : uint8_t { attn, mlp, head, embedding };
inline constexpr std::array kUnits{Unit::attn, Unit::mlp, Unit::head, Unit::embedding};

/// F forward, I input gradient. A unit's weight gradients come in two parts: W_early, those of the
/// row-parallel linears (proj, fc2), and W_late, those of the column-parallel ones (QKV, fc1). In
/// Megatron-LM's order only W_late can overlap the unit's own all-reduce.
enum class UnitPass : uint8_t { F, I, W_early, W_late };
inline constexpr std::array kUnitPasses{UnitPass::F, UnitPass::I, UnitPass::W_early, UnitPass::W_late};

/// Whether the unit has that pass: the head's and the embedding's weight gradients have no early part, and
/// the embedding has no input to make a gradient for.
constexpr bool has_pass(Unit unit, UnitPass pass) {
  if (unit == Unit::embedding && pass == UnitPass::I) return false;
  return pass != UnitPass::W_early || unit == Unit::attn || unit == Unit::mlp;
}

/// Context parallelism divides attn's F and I in three: what is before the attention's core (in F norm, QKV
/// and rotary, in I the projection's input gradient), the steps of the core, and what is behind it.
enum class AttnPart : uint8_t { whole, before, core, after };
/// "", "_before", "_core", "_after"
std::string suffix(AttnPart part);

std::string to_string(Unit unit);
/// As in cost tables: "attn.F", "mlp.W_early", and "mlp.W" for W_late.
std::string to_string(Unit unit, UnitPass pass);

}  // namespace stp
