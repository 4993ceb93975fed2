// The components of each unit, in the order of the forward. The functions of work.h derive from this table
// the work of a unit and of its parts, and its saved tensors. A new kind of unit is one table, and rows of
// kElementwise in components.cc for new kinds of components.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <span>

#include "stp/model/parameters.h"
#include "stp/model/work.h"

namespace stp {

enum class ComponentKind : uint8_t {
  norm,
  linear,
  split,           // adds the bias of q, k and v, and splits them
  query_key_norm,  // only in models that have it; the suite copies q and k, and their results back
  rotary,          // of q and k
  core,            // the core of an attention, between its two linear layers
  join,            // joins the heads
  activation,
  residual,  // with the dropout before it; the suite adds 1/t of it in the second linear layer, before the
             // all-reduce
  loss,
  lookup,  // in a table; each rank has some of its rows
  exchange,
};
inline constexpr size_t kComponentKinds = static_cast<size_t>(ComponentKind::exchange) + 1;

/// Widths of a rank's tensors, in elements per token; for the merger, per merged token.
enum class Width : uint8_t {
  hidden,      // the unit's input, all tokens
  own_hidden,  // with sequence parallelism: the unit's input, this rank's share of the tokens
  statistics,  // a norm's statistics, for the same share
  output,      // the unit's output
  q,
  k_and_v,
  q_and_k,
  qkv,
  heads,
  all_heads,  // of q and of k
  scores,
  fc1,  // gate and up, if the MLP is gated
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
  bool dropped = true;  // F drops it if I recomputes the component
};

/// The weights of a linear layer or table.
struct TrainedWeights {
  std::optional<Saved> input;     // none: the input is tokens
  Width input_width;              // with the component's width, the size of the GEMM
  std::optional<Saved> gradient;  // the output's gradient, made by I; none: the unit's own, unchanged
  UnitPass pass;                  // the pass that makes their gradient
  Biases bias;                    // the models that have its bias: none, those of qkv and all, or of all
  Role role;                      // Role::first or Role::second

  [[nodiscard]] Role bias_role() const { return role == Role::first ? Role::first_bias : Role::second_bias; }
  [[nodiscard]] bool has_bias(const ModelConfig& model) const {
    return bias != Biases::none && model.biases() >= bias;
  }
};

/// How ranks exchange a tensor.
struct ExchangeRule {
  const char* name;                // of its ops
  bool (Strategy::*used)() const;  // the strategies that have it
  bool all_to_all;                 // each rank sends a block to each other; else a ring: to the next, whole
  Axes axes;                       // along which the ranks differ
  Width width;                     // of a rank's tensor
};
inline constexpr ExchangeRule kExchanges[] = {
    {"key-value exchange", &Strategy::in_ring, false, {.cp = true}, Width::k_and_v},
    {"key-value gradient exchange", &Strategy::in_ring, false, {.cp = true}, Width::k_and_v},
    {"all-to-all", &Strategy::exchanges_heads, true, {.cp = true}, Width::qkv},
    {"all-to-all", &Strategy::exchanges_heads, true, {.cp = true}, Width::q},
    {"row exchange", &Strategy::overlaps, false, {.tp = true}, Width::own_hidden}};
static_assert(std::size(kExchanges) == static_cast<size_t>(Exchange::rows) + 1);
constexpr const ExchangeRule& rule_of(Exchange exchange) { return kExchanges[static_cast<size_t>(exchange)]; }

/// Sequence parallelism divides a component's tokens if its width is own_hidden; otherwise tensor parallelism
/// divides its width. tp_overlap divides a linear layer by rows in the part before the core, and by output
/// columns in F's part after it. Context parallelism divides a core by ring steps or by heads
/// (Strategy::steps).
struct Component {  // NOLINT(clang-analyzer-optin.performance.Padding): few rows, in reading order
  ComponentKind kind;
  UnitPart part;                     // in F; I has the parts in reverse order. whole: the unit has no parts
  Width width;                       // of the output
  bool Recompute::*again = nullptr;  // the option that makes I run it again
  std::span<const Kept> keeps = {};  // an implementation may keep only some of them
  const TrainedWeights* weights = nullptr;
  Exchange exchange = {};

  [[nodiscard]] bool recomputed(const Recompute& recompute) const {
    return again != nullptr && recompute.*again;
  }
  /// Whether it is an exchange that `strategy` has.
  [[nodiscard]] bool exchanges(const Strategy& strategy) const {
    return kind == ComponentKind::exchange && (strategy.*rule_of(exchange).used)();
  }
  /// The component's part, where `strategy` divides the unit.
  [[nodiscard]] UnitPart part_of(UnitPass pass, const Strategy& strategy) const;
};

/// The unit's components, in the order of the forward. Layers of both models have the same components.
std::span<const Component> components(Unit unit);

/// Whether the suite's kernel of the rotary embedding adds the bias of `unit`'s first linear layer.
bool rotary_adds_bias(const ModelConfig& model, Unit unit);

/// Returns the first component of `kind`, or null.
const Component* find_component(Unit unit, ComponentKind kind);
/// Whether I recomputes that component: the first linear layer from all rows of the norm's output.
bool is_recomputed(const Recompute& recompute, Unit unit, ComponentKind kind);

/// A component's memory traffic in F and in I, beside GEMMs and attention, in reads and writes of whole
/// tensors of its width (an fp32 tensor counts twice), and its launches.
struct Elementwise {
  double forward = 0, backward = 0;
  int forward_kernels = 0, backward_kernels = 0;
};
Elementwise elementwise(const ModelConfig& model, Implementation implementation, ComponentKind kind);

}  // namespace stp
