#include "stp/model/components.h"

#include <algorithm>
#include <array>
#include <iterator>

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
    {Kind::exchange, core, Width::qkv, &Recompute::qkv, {}, nullptr, Exchange::qkv},
    {Kind::exchange, core, Width::k_and_v, &Recompute::core, {}, nullptr, Exchange::kv},
    {Kind::core, core, Width::q, &Recompute::core, kCore},
    {Kind::exchange, core, Width::q, &Recompute::core, {}, nullptr, Exchange::output},
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

struct OfImplementations {
  Elementwise megatron, suite, megatron_2022, megatron_te;
};

// By ComponentKind; of a language model, gated. `megatron` is counted over PyTorch's operators. RMSNorm casts
// up (3), squares (4), averages (2), scales (4), casts down (3), weighs (2); its backward has the same steps
// with two operands. The residual: divide by t (2), add (3). `megatron_2022`: LayerNorm reads and writes; its
// backward reads the gradient and the input, writes, and reads both again for scale and shift. Bias, dropout
// and residual read two, write one and a mask of one byte; backward the mask and the gradient make the
// sublayer's gradient (2.5), which is summed for the bias (1), and the residual's gradient is added (3).
// Both: the activation reads gate and up, writes; backward reads three, writes two. The loss, in fp32: cast
// up, maximum, exponential, sum; backward softmax minus one-hot, cast down. The suite has each in one kernel;
// the residual is read by the GEMM that makes the output (1), or with sequence parallelism added to it
// (work.cc). Its launches are its calls of Kernels (lib/stp/device/kernels.h) on the rank of a group that
// makes most of them. `megatron_te`: the norm reads and writes; its backward reads the gradient and the input
// and writes, in two kernels, and two small ones add the gain's gradient. q (with grouped queries) and v are
// copied to be contiguous, and rotary makes new q and k; backward the gradients of q, k and v are joined. The
// losses of Triton and the suite read the logits twice and write their gradient in their place; Triton's
// backward multiplies it by the loss's weight.
constexpr Elementwise kGemm{0, 0, 1, 1};
constexpr OfImplementations kElementwise[] = {
    {{18, 30, 6, 12}, {2, 3, 1, 1}, {2, 5, 6, 12}, {2, 3, 1, 4}},  // norm
    {kGemm, kGemm, kGemm, kGemm},                                  // linear
    {{}, {}, {2, 3}, {0, 2, 0, 1}},                                // split, elsewhere launched by rotary
    {{18, 30, 6, 12}, {6, 7, 6, 6}, {2, 5, 2, 4}, {2, 3, 2, 4}},   // norms of q and k
    {{2, 2, 5}, {2, 2, 1, 1}, {2, 2, 5}, {4, 2, 4, 2}},            // rotary
    {},                                                            // core: core_of() in work.cc
    {{0, 0, 0, 6}, {}, {2, 2, 0, 6}, {}},                          // join, launches rotary's backward
    {{3, 5, 2, 2}, {3, 5, 1, 1}, {3, 5 + 1, 2, 2}, {3, 5, 1, 1}},  // activation, in 2022 sums for the bias
    {{5, 3, 2, 2}, {1, 1, 0, 0}, {3.5, 6.5, 2, 2}, {3, 3, 1, 1}},  // residual
    {{11, 6, 9, 3}, {3, 0, 4, 0}, {11, 6, 9, 3}, {3, 2, 2, 1}},    // loss
    {{3, 0, 4, 6}, {3, 0, 1, 1}, {3, 0, 4, 6}, {3, 0, 4, 6}},      // lookup
    {}};                                                           // exchange: the ops of exchanges
static_assert(std::size(kElementwise) == kComponentKinds);

const Elementwise& of(const OfImplementations& all, Implementation implementation) {
  switch (implementation) {
    case Implementation::megatron:
      return all.megatron;
    case Implementation::suite:
      return all.suite;
    case Implementation::megatron_2022:
      return all.megatron_2022;
    case Implementation::megatron_te:
    case Implementation::megatron_te_2_18:
      return all.megatron_te;
  }
  return all.megatron;
}

}  // namespace

std::string to_string(Saved tensor) {
  static constexpr std::array kNames{"patches",
                                     "norm input",
                                     "norm input in fp32",
                                     "normalised input",
                                     "norm statistics",
                                     "dropout mask",
                                     "norm output",
                                     "q, k, v",
                                     "input of the norms of q and k",
                                     "statistics of the norms of q and k",
                                     "attention output",
                                     "output of the core",
                                     "log-sum-exp",
                                     "softmax",
                                     "mask of the softmax",
                                     "softmax after dropout",
                                     "fc1 output",
                                     "gate in fp32",
                                     "activated gate",
                                     "activation",
                                     "softmax in fp32",
                                     "gradient of the logits",
                                     "gradient of the first linear's output",
                                     "gradient of the output"};
  static_assert(kNames.size() == kSavedTensors);
  return kNames[static_cast<size_t>(tensor)];
}

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

// An encoder's norm is a LayerNorm, one kernel of PyTorch, and its biases' gradients are sums.
Elementwise elementwise(const ModelConfig& model, Implementation implementation, ComponentKind kind) {
  const bool suite = implementation == Implementation::suite,
             unfused = implementation == Implementation::megatron;
  Elementwise each = of(kElementwise[static_cast<size_t>(kind)], implementation);
  const bool activation = kind == ComponentKind::activation, encoder = model.family == Family::vit;
  if (kind == ComponentKind::query_key_norm && !model.variant.query_key_norm) return {};
  if (activation && !model.gated()) {
    each.forward -= 1;
    each.backward -= 2;
  }
  if (kind == ComponentKind::rotary && !model.rotary()) {
    if (suite) return {};
    each.forward = each.backward = 0;
  }
  if (uses_transformer_engine(implementation)) {
    if (kind == ComponentKind::rotary && !model.rotary()) return {};  // attention reads q, k and v in place
    if (kind == ComponentKind::rotary && model.q_heads == model.kv_heads)
      each.forward -= 1, each.forward_kernels -= 1;  // q needs no copy
    if (kind == ComponentKind::loss && implementation == Implementation::megatron_te_2_18)
      each.forward += 1, each.backward += 1.5;  // the gradient is fp32
  }
  if (!encoder || !unfused) return each;
  if (kind == ComponentKind::norm)
    each = {2, 5, each.forward_kernels, each.backward_kernels};
  else if (activation || kind == ComponentKind::split || kind == ComponentKind::residual)
    each.backward += 1;
  return each;
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

bool Strategy::divides(Unit unit) const {
  const auto all = components(unit);
  return !is_vision(unit) &&
         ((overlaps() && all.front().part != UnitPart::whole) ||
          std::ranges::any_of(all, [&](const Component& each) { return each.exchanges(*this); }));
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

// An all-to-all stands before the core or behind it. A ring brings what the next step works on beside each
// step; in I a step's gradients leave with the exchange after it, and the last one returns each rank's to it.
std::vector<CoreExchange> Strategy::core_exchanges(Unit unit, UnitPass pass) const {
  std::vector<CoreExchange> found;
  const auto all = components(unit);
  const int last = steps(unit, pass, UnitPart::core);
  bool behind = false;
  for (size_t i = 0; i < all.size(); ++i) {
    const Component& each = all[pass == UnitPass::F ? i : all.size() - 1 - i];
    behind = behind || (each.part == UnitPart::core && each.kind != ComponentKind::exchange);
    if (!each.exchanges(*this)) continue;
    const bool again = each.recomputed(recompute);
    if (rule_of(each.exchange).all_to_all) {
      const int at = behind ? last : 0;
      found.push_back({each.exchange, behind ? 2 : 1, at, at, again});
      continue;
    }
    for (int step = 0; step <= last; ++step) {
      if (step + 1 < last) found.push_back({each.exchange, step + 1, step, step + 1, again});
      if (pass == UnitPass::I && step > 0)
        found.push_back({Exchange::kv_gradients, step, step, step == last ? last : -1, again});
    }
  }
  return found;
}

}  // namespace stp
