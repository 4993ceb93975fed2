#include "stp/model/components.h"

#include <algorithm>

namespace stp {
namespace {

using Kind = ComponentKind;
using ElementType = Kept::Type;
using enum UnitPart;
using enum UnitPass;

// Unfused autograd keeps an fp32 copy of the norm's input and the scaled tensor. Megatron-LM's default
// dropout keeps a mask of one byte per element. A recomputed norm keeps its inner tensors.
constexpr Kept kNorm[] = {{Saved::norm_input, Width::own_hidden, I, ElementType::activation, false},
                          {Saved::norm_statistics, Width::statistics, I, ElementType::fp32_at_least},
                          {Saved::norm_input_fp32, Width::own_hidden, I, ElementType::fp32_at_least, false},
                          {Saved::normalised_input, Width::own_hidden, I, ElementType::activation, false},
                          {Saved::dropout_mask, Width::own_hidden, I, ElementType::byte, false},
                          {Saved::norm_output, Width::own_hidden, W_late}};
constexpr Kept kQkv[] = {{Saved::qkv, Width::qkv}};
constexpr Kept kQueryKeyNorm[] = {
    {Saved::query_key_norm_input, Width::q_and_k},
    {Saved::query_key_norm_statistics, Width::all_heads, I, ElementType::fp32_at_least}};
constexpr Kept kCore[] = {{Saved::attention_output, Width::q, W_early},
                          {Saved::core_output, Width::q},
                          {Saved::log_sum_exp, Width::heads, I, ElementType::fp32_at_least},
                          {Saved::softmax, Width::scores},
                          {Saved::softmax_mask, Width::scores, I, ElementType::byte},
                          {Saved::softmax_after_dropout, Width::scores}};
constexpr Kept kFc1[] = {{Saved::fc1_output, Width::fc1},
                         {Saved::gate_fp32, Width::ffn, I, ElementType::fp32_at_least},
                         {Saved::activated_gate, Width::ffn}};
constexpr Kept kActivation[] = {{Saved::activation, Width::ffn, W_early}};
constexpr Kept kLoss[] = {{Saved::softmax_fp32, Width::vocabulary, I, ElementType::fp32_at_least}};
constexpr Kept kPatches[] = {{Saved::patches, Width::patch, W_late}};

constexpr TrainedWeights kQkvWeights{Saved::norm_output, Width::hidden, Saved::inner_gradient, W_late,
                                     Biases::qkv,        Role::first};
constexpr TrainedWeights kProjection{
    Saved::attention_output, Width::q, Saved::output_gradient, W_early, Biases::all, Role::second};
constexpr TrainedWeights kFc1Weights{Saved::norm_output, Width::hidden, Saved::inner_gradient, W_late,
                                     Biases::all,        Role::first};
constexpr TrainedWeights kFc2Weights{Saved::activation, Width::ffn,  Saved::output_gradient,
                                     W_early,           Biases::all, Role::second};
constexpr TrainedWeights kVocabulary{Saved::norm_output, Width::hidden, Saved::logits_gradient, W_late,
                                     Biases::none,       Role::first};
constexpr TrainedWeights kPatchWeights{Saved::patches, Width::patch, {}, W_late, Biases::none, Role::first};
constexpr TrainedWeights kTable{{},     Width::vocabulary, Saved::output_gradient,
                                W_late, Biases::none,      Role::first};

constexpr Component kAttention[] = {
    {Kind::norm, before, Width::own_hidden, &Recompute::norm, kNorm},
    {Kind::linear, before, Width::qkv, &Recompute::qkv, kQkv, &kQkvWeights},
    {Kind::split, before, Width::qkv, &Recompute::qkv},
    {Kind::query_key_norm, before, Width::q_and_k, &Recompute::qkv, kQueryKeyNorm},
    {Kind::rotary, before, Width::q_and_k, &Recompute::qkv},
    {Kind::core, core, Width::q, &Recompute::core, kCore},
    {Kind::join, after, Width::q, &Recompute::qkv},
    {Kind::linear, after, Width::output, &Recompute::qkv, {}, &kProjection},
    {Kind::residual, after, Width::own_hidden}};

constexpr Component kMlp[] = {{Kind::norm, before, Width::own_hidden, &Recompute::norm, kNorm},
                              {Kind::linear, before, Width::fc1, &Recompute::mlp, kFc1, &kFc1Weights},
                              {Kind::activation, core, Width::ffn, &Recompute::activation, kActivation},
                              {Kind::linear, after, Width::output, &Recompute::mlp, {}, &kFc2Weights},
                              {Kind::residual, after, Width::own_hidden}};

constexpr Component kHead[] = {{Kind::norm, whole, Width::own_hidden, nullptr, kNorm},
                               {Kind::linear, whole, Width::vocabulary, nullptr, {}, &kVocabulary},
                               {Kind::loss, whole, Width::vocabulary, nullptr, kLoss}};

constexpr Component kEmbedding[] = {{Kind::lookup, whole, Width::output, nullptr, {}, &kTable}};

constexpr Component kEmbeddingOfPatches[] = {
    {Kind::linear, whole, Width::output, nullptr, kPatches, &kPatchWeights}};

constexpr Component kMerger[] = {{Kind::norm, whole, Width::own_hidden, nullptr, kNorm},
                                 {Kind::linear, whole, Width::fc1, nullptr, kFc1, &kFc1Weights},
                                 {Kind::activation, whole, Width::ffn, nullptr, kActivation},
                                 {Kind::linear, whole, Width::output, nullptr, {}, &kFc2Weights}};

}  // namespace

std::span<const Component> components(Unit unit) {
  switch (unit) {
    case Unit::attn:
    case Unit::vision_attn:
      return kAttention;
    case Unit::mlp:
    case Unit::vision_mlp:
      return kMlp;
    case Unit::head:
      return kHead;
    case Unit::embedding:
      return kEmbedding;
    case Unit::patches:
      return kEmbeddingOfPatches;
    case Unit::merger:
      return kMerger;
  }
  return {};
}

// In I the parts are in reverse order; the norm's backward is fused with the residual's.
UnitPart Component::part_of(UnitPass pass, const Strategy& strategy) const {
  if (pass == UnitPass::F) return kind == ComponentKind::norm && strategy.overlaps() ? UnitPart::norm : part;
  if (kind == ComponentKind::residual || part == UnitPart::before) return UnitPart::after;
  return part == UnitPart::after ? UnitPart::before : part;
}

bool rotary_adds_bias(const ModelConfig& model, Unit unit) {
  return is_attention(unit) && model.rotary() && !model.variant.query_key_norm;
}

const Component* find_component(Unit unit, ComponentKind kind) {
  const auto all = components(unit);
  const auto found = std::ranges::find(all, kind, &Component::kind);
  return found == all.end() ? nullptr : &*found;
}

bool is_recomputed(const Recompute& recompute, Unit unit, ComponentKind kind) {
  const Component* const component = find_component(unit, kind);
  return component != nullptr && component->recomputed(recompute);
}

bool Strategy::is_in_parts(Unit unit) const {
  if (is_vision(unit)) return false;
  if (find_component(unit, ComponentKind::core) != nullptr) return true;
  return overlaps() && components(unit).front().part != UnitPart::whole;
}

int Strategy::steps(Unit unit, UnitPass pass, UnitPart part) const {
  const bool forward = pass == UnitPass::F;
  switch (part) {
    case UnitPart::whole:
      return 1;
    case UnitPart::norm:
      return forward && overlaps() ? 1 : 0;
    case UnitPart::before:
      return overlaps() ? tp : 1;
    case UnitPart::core:
      return exchanges_heads() || find_component(unit, ComponentKind::core) == nullptr ? 1 : cp;
    case UnitPart::after:
      if (!forward || !overlaps()) return 1;
      return ring_scatter[static_cast<size_t>(unit)] ? tp : kPipelineSteps;
  }
  return 0;
}

int Strategy::core_exchanges(Unit unit, UnitPass pass) const {
  if (cp == 1 || find_component(unit, ComponentKind::core) == nullptr) return 0;
  if (exchanges_heads()) return 2;
  return pass == UnitPass::F ? cp - 1 : 2 * cp - 1;  // keys and values; in I their gradients, too
}

}  // namespace stp
