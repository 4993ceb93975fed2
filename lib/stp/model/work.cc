#include "stp/model/work.h"

#include <algorithm>
#include <array>

#include "stp/base/error.h"
#include "stp/model/components.h"

namespace stp {
namespace {

// The shape that the encoder's layers compute on, as a model.
Shape vision_shape(const Shape& shape) {
  Shape encoder = shape;
  encoder.seq = shape.vision_tokens;
  return encoder;
}

// Per-rank widths of a unit, and the bytes of a tensor of such a width.
struct Widths {
  double tokens, element;
  std::array<double, kWidths> of{};

  Widths(const ModelConfig& model, const Shape& shape)
      : tokens(shape.tokens()), element(shape.element_bytes) {
    const double hidden = model.hidden, tp = shape.strategy.tp;
    const double q = model.q_heads * model.head_dim / tp, kv = model.kv_heads * model.head_dim / tp,
                 ffn = model.ffn / tp;
    at(Width::hidden) = at(Width::output) = hidden;
    // Norms, dropout and residuals, averaged over the tokens.
    at(Width::own_hidden) = shape.strategy.sequence_parallel ? hidden / tp : hidden;
    at(Width::statistics) = (model.norm() == Norm::rms ? 1 : 2) * at(Width::own_hidden) / hidden;
    at(Width::q) = q;
    at(Width::k_and_v) = 2 * kv;
    at(Width::q_and_k) = q + kv;
    at(Width::qkv) = q + 2 * kv;
    at(Width::heads) = model.q_heads / tp;
    at(Width::all_heads) = (model.q_heads + model.kv_heads) / tp;
    at(Width::scores) = at(Width::heads) * shape.seq;
    at(Width::fc1) = (model.gated() ? 2 : 1) * ffn;
    at(Width::ffn) = ffn;
    at(Width::vocabulary) = model.vocab / tp / shape.vocabulary_ranks();
    at(Width::patch) = kPatchElements;
  }
  // Widths of the merger behind an encoder of these widths. Its norm works on single tokens.
  void merge(const ModelConfig& language_model, int tp) {
    tokens /= kTokensMerged;
    at(Width::statistics) = 2 * kTokensMerged;
    at(Width::hidden) = at(Width::own_hidden) = kTokensMerged * at(Width::hidden);
    at(Width::fc1) = at(Width::ffn) = at(Width::hidden) / tp;
    at(Width::output) = language_model.hidden;
  }

  double& at(Width width) { return of[static_cast<size_t>(width)]; }
  [[nodiscard]] double operator[](Width width) const { return of[static_cast<size_t>(width)]; }
  [[nodiscard]] double bytes(Width width) const { return tokens * (*this)[width] * element; }
  [[nodiscard]] double bytes(const Kept& kept) const {
    const double each = kept.type == Kept::Type::byte            ? 1
                        : kept.type == Kept::Type::fp32_at_least ? std::max(kFp32, element)
                                                                 : element;
    return tokens * (*this)[kept.width] * each;
  }
};

void add(Work& to, const Work& more) {
  to.gemms.insert(to.gemms.end(), more.gemms.begin(), more.gemms.end());
  to.attentions.insert(to.attentions.end(), more.attentions.begin(), more.attentions.end());
  to.replicated_bytes += more.replicated_bytes;
  to.sharded_bytes += more.sharded_bytes;
  to.kernels += more.kernels;
}

// A unit's components on one rank: their work and their saved tensors.
class UnitOnRank {
 public:
  UnitOnRank(const ModelConfig& model, const Shape& shape, Implementation implementation, Unit unit)
      : model_(is_vision(unit) ? model.encoder() : model),
        shape_(is_vision(unit) ? vision_shape(shape) : shape),
        implementation_(implementation),
        suite_(implementation == Implementation::suite),
        te_(uses_transformer_engine(implementation)),
        unit_(unit),
        core_(find_component(unit, ComponentKind::core)),
        w_(model_, shape_) {
    if (unit == Unit::merger) w_.merge(model, shape.strategy.tp);
  }

  [[nodiscard]] Work whole(UnitPass pass) const {
    Work work;
    add_all_but_core(work, pass, false);
    add_core(work, pass);
    if (pass != UnitPass::I) return work;
    if (shape_.strategy.recompute.core) add_core(work, UnitPass::F);
    add_all_but_core(work, UnitPass::F, true);
    return work;
  }

  // The work of all steps of a part, except the steps of the attention's core.
  [[nodiscard]] Work part(UnitPass pass, UnitPart part, int step) const {
    if (part == UnitPart::core && core_ != nullptr) return of(*core_, pass, step);
    Work work;
    for (const Component& component : components(unit_))
      if (component.part_of(pass, shape_.strategy) == part) add(work, of(component, pass));
    if (pass == UnitPass::I && part == UnitPart::before) add_all_but_core(work, UnitPass::F, true);
    return work;
  }

  [[nodiscard]] std::vector<SavedTensor> saved() const {
    std::vector<SavedTensor> tensors;
    for (const Component& component : components(unit_))
      for (const Kept& kept : component.keeps)
        if (exists(kept.which))
          tensors.push_back({.which = kept.which,
                             .bytes = w_.bytes(kept),
                             .weight_gradient = kept.until != UnitPass::I,
                             .made_by_forward = !(kept.dropped && makes_again(component, kept.which)),
                             .early = kept.until == UnitPass::W_early,
                             .norm = component.kind == ComponentKind::norm});
    for (const Component& component : components(unit_)) {
      if (!component.weights || !component.weights->gradient || !exists(*component.weights->gradient))
        continue;
      const bool by_loss = loss_is_in_place() && component.weights->gradient == Saved::logits_gradient;
      tensors.push_back({.which = *component.weights->gradient,
                         .bytes = w_.bytes(component.width),
                         .weight_gradient = true,
                         .made_by_forward = by_loss,
                         .early = component.weights->pass == UnitPass::W_early,
                         .gradient = !by_loss});
    }
    return tensors;
  }

 private:
  // The core's own GEMMs come after those of linear layers. `again`: only the components that I runs again.
  void add_all_but_core(Work& to, UnitPass pass, bool again) const {
    for (const Component& component : components(unit_))
      if (component.kind != ComponentKind::core && (!again || runs_again(component)))
        add(to, of(component, pass));
  }
  void add_core(Work& to, UnitPass pass) const {
    const int steps = core_ == nullptr ? 0 : shape_.strategy.steps(unit_, pass, UnitPart::core);
    for (int step = 0; step < steps; ++step) add(to, of(*core_, pass, step));
  }

  // Whether the loss leaves the gradient of the logits in their place.
  [[nodiscard]] bool loss_is_in_place() const {
    return suite_ || implementation_ == Implementation::megatron_te;
  }

  // Whether I makes again what F of a component makes. Transformer Engine's first linear layers contain the
  // norm: it is recomputed with them, and alone never (Megatron-Core's `layernorm` finds no module of its
  // own).
  [[nodiscard]] bool recomputed(const Component& component) const {
    const Recompute& recompute = shape_.strategy.recompute;
    return te_ && component.kind == ComponentKind::norm
               ? is_recomputed(recompute, unit_, ComponentKind::linear)
               : component.recomputed(recompute);
  }

  // Whether I runs F of a component again. A checkpoint of autograd runs the whole unit again, and the second
  // linear layer without use; the suite runs only what it needs.
  [[nodiscard]] bool runs_again(const Component& component) const {
    return recomputed(component) && (!suite_ || component.part != UnitPart::after);
  }

  [[nodiscard]] Work of(const Component& component, UnitPass pass, int step = 0) const {
    const bool forward = pass == UnitPass::F;
    if (!forward && pass != UnitPass::I)
      return component.weights && component.weights->pass == pass ? weight_gradients(component) : Work{};
    if (component.kind == ComponentKind::core) return core_of(forward, step);
    Elementwise each = elementwise(model_, implementation_, component.kind);
    if (te_ && component.kind == ComponentKind::norm && unit_ != Unit::head &&
        shape_.strategy.overlaps()) {  // copies into and out of the buffers of the exchanges
      each.forward += 2, each.forward_kernels += 1;
      each.backward += 4, each.backward_kernels += 2;
    }
    if (suite_ && component.kind == ComponentKind::residual && shape_.strategy.sequence_parallel)
      each.forward = 3, each.forward_kernels = 1;  // added to this rank's rows of the output
    const double bytes = (forward ? each.forward : each.backward) * w_.bytes(component.width);
    const bool own_rows = component.width == Width::own_hidden;  // every rank's, or its share of them
    Work work{.replicated_bytes = own_rows ? bytes : 0,
              .sharded_bytes = own_rows ? 0 : bytes,
              .kernels = forward ? each.forward_kernels : each.backward_kernels};
    if (component.kind == ComponentKind::linear) {
      work.gemms = {forward ? gemm(component) : input_gradient(gemm(component))};
      const bool in_rotary = component.weights->role == Role::first && rotary_adds_bias(model_, unit_);
      if (forward && !in_rotary) work.kernels += sums(component);
    }
    if (component.kind == ComponentKind::lookup) work.kernels += images() + 2 * positions();
    if (component.kind == ComponentKind::split && !forward) work.kernels += ring_copies();
    return work;
  }

  [[nodiscard]] Gemm gemm(const Component& linear) const {
    return {w_.tokens, w_[linear.width], w_[linear.weights->input_width]};
  }

  // Gradients are accumulated over the microbatches: read and written once by the GEMM's epilogue
  // (Megatron-LM's fused accumulation; writing a bf16 result is part of the GEMM's own cost).
  [[nodiscard]] Work weight_gradients(const Component& component) const {
    if (component.kind == ComponentKind::lookup) return table_gradient(component);
    const Gemm forward = gemm(component);
    return {.gemms = {weight_gradient(forward)},
            .sharded_bytes = 2.0 * shape_.gradient_bytes * forward.n * forward.k,
            .kernels = 1 + sums(component)};
  }
  // The suite's launches that add a bias or sum its gradient.
  [[nodiscard]] int sums(const Component& linear) const {
    return suite_ && linear.weights->has_bias(model_) ? 1 : 0;
  }

  // Every rank looks up the tokens of its share of the vocabulary and masks the others; the gradient does the
  // same. Autograd makes the full gradient in half precision, zeroed (2 bytes per weight), and adds it to the
  // fp32 gradient (10), for each microbatch and any tokens. The fused form touches only rows that occur.
  [[nodiscard]] Work table_gradient(const Component& lookup) const {
    const double read = w_.bytes(Width::hidden);
    const int kernels =
        elementwise(model_, implementation_, lookup.kind).backward_kernels + images() + positions();
    if (suite_)
      return {.sharded_bytes =
                  read + (2 * shape_.gradient_bytes) * w_.tokens * w_[Width::hidden] / shape_.strategy.tp,
              .kernels = kernels};
    return {.sharded_bytes = 2 * read + (2 * w_.element + 2 * shape_.gradient_bytes) * w_[Width::vocabulary] *
                                            w_[Width::hidden],
            .kernels = kernels};
  }
  // Behind a vision encoder the suite copies the images of each sample, and their gradients.
  [[nodiscard]] int images() const { return suite_ && model_.has_vision() ? shape_.microbatch_size : 0; }

  // The suite looks learned positions up like tokens, and adds them.
  [[nodiscard]] int positions() const { return suite_ && model_.positions > 0 ? 1 : 0; }

  // The attention's core, in a ring one step. From the second step on, all of a rank's queries attend to one
  // piece of another rank's keys; the later half with both pieces is as much work. Such a step adds its
  // result to the output or the gradients of q, k and v so far: it reads both and writes.
  [[nodiscard]] Work core_of(bool forward, int step) const {
    Work work =
        implementation_ == Implementation::megatron_2022 ? unfused_core(forward) : core(forward, step);
    if (step > 0) {
      work.sharded_bytes += 3 * w_.bytes(forward ? Width::q : Width::qkv);
      work.kernels += suite_ ? 0 : 2;
    } else if (!forward) {
      work.kernels += ring_copies();
    }
    return work;
  }
  [[nodiscard]] Work core(bool forward, int step) const {
    const bool by_heads = shape_.strategy.exchanges_heads();
    const double rows = by_heads ? shape_.seq : shape_.own_seq();
    const double heads =
        w_[Width::q] / model_.head_dim * shape_.microbatch_size / (by_heads ? shape_.strategy.cp : 1);
    return {.attentions = {{heads, rows, step == 0 ? rows : rows / 2, double{1} * model_.head_dim,
                            model_.causal() && step == 0, !forward}},
            .kernels = forward || suite_ ? 1
                       : te_             ? 3
                                         : 2};
  }
  // Batched GEMMs over the heads of this rank: QKᵀ, PV; backward dP, dV, dQ and dK. Traffic per score and in
  // bf16 tensors: the fused softmax reads the unmasked half and writes all; dropout reads, writes, and writes
  // a mask of one byte. Backward: dropout reads gradient and mask and writes; softmax reads the halves of
  // gradient and output and writes all.
  [[nodiscard]] Work unfused_core(bool forward) const {
    const double rows = w_.tokens * model_.q_heads / shape_.strategy.tp, dim = model_.head_dim,
                 seq = shape_.seq;
    const Gemm scores{rows, seq, dim}, values{rows, dim, seq};
    const double of_scores = w_.bytes(Width::scores);
    if (forward) return {.gemms = {scores, values}, .sharded_bytes = (1.5 + 2.5) * of_scores, .kernels = 4};
    return {.gemms = {scores, values, values, values}, .sharded_bytes = (2.5 + 2) * of_scores, .kernels = 6};
  }
  // In I the suite copies the gradients of its own k and v to the ring and, after the last step, back.
  [[nodiscard]] int ring_copies() const { return suite_ && shape_.strategy.in_ring() ? 1 : 0; }

  // Whether this implementation has a tensor. A fused norm keeps its input once.
  [[nodiscard]] bool exists(Saved which) const {
    const bool of_2022 = implementation_ == Implementation::megatron_2022;
    const bool fused_norm = suite_ || te_ || of_2022 || model_.family == Family::vit;
    switch (which) {
      case Saved::norm_input:
        return fused_norm;
      case Saved::norm_statistics:
        return suite_ || te_;
      case Saved::norm_input_fp32:
      case Saved::normalised_input:
        return !fused_norm;
      case Saved::query_key_norm_input:
      case Saved::query_key_norm_statistics:
        return model_.variant.query_key_norm;
      case Saved::dropout_mask:
        if (te_ && model_.variant.dropout == 0) return false;
        return !suite_ && find_component(unit_, ComponentKind::residual) != nullptr;
      case Saved::core_output:  // all rows of some heads, as the core's backward reads it
        return shape_.strategy.exchanges_heads();
      case Saved::log_sum_exp:
        return !of_2022;
      case Saved::softmax:
      case Saved::softmax_mask:
      case Saved::softmax_after_dropout:
        return of_2022 && !shape_.strategy.recompute.core;
      case Saved::gate_fp32:
      case Saved::activated_gate:
        return implementation_ == Implementation::megatron && model_.gated();
      case Saved::softmax_fp32:
        return !loss_is_in_place();
      case Saved::output_gradient:  // I passes it to the embedding's W, only with a vision encoder
        return unit_ != Unit::embedding || model_.has_vision();
      default:
        return true;
    }
  }

  // Whether I makes a tensor of the component again. If only the core is recomputed, Megatron-LM keeps its
  // output, an input of a linear.
  [[nodiscard]] bool makes_again(const Component& component, Saved which) const {
    const bool output = which == Saved::attention_output || (which == Saved::log_sum_exp && !te_);
    return recomputed(component) && (!output || suite_ || shape_.strategy.recompute.qkv);
  }

  const ModelConfig model_;  // for a vision encoder's unit: the encoder's
  const Shape shape_;
  const Implementation implementation_;
  const bool suite_, te_;
  const Unit unit_;
  const Component* const core_;  // null except for attention
  Widths w_;
};

}  // namespace

double attention_flops(const Work& work, bool backward) {
  double flops = 0;
  for (const Attention& attention : work.attentions)
    if (attention.backward == backward) flops += attention.flops();
  return flops;
}

std::string to_string(GemmKind kind) {
  static constexpr std::array names{"forward", "input_gradient", "weight_gradient"};
  return names[static_cast<size_t>(kind)];
}

Work work(const ModelConfig& model, const Shape& shape, Implementation implementation, Unit unit,
          UnitPass pass) {
  if (!has_pass(unit, pass) || (is_vision(unit) && !model.has_vision())) return {};
  return UnitOnRank(model, shape, implementation, unit).whole(pass);
}

bool is_divided_by_columns(const Strategy& strategy, Unit unit, UnitPart part) {
  return part == UnitPart::after && !strategy.ring_scatter[static_cast<size_t>(unit)];
}

Work unit_part_work(const ModelConfig& model, const Shape& shape, Implementation implementation, Unit unit,
                    UnitPass pass, UnitPart part, int step) {
  Work work = UnitOnRank(model, shape, implementation, unit).part(pass, part, step);
  const int steps = shape.strategy.steps(unit, pass, part);
  if (steps == 1 || part == UnitPart::core) return work;
  Gemm& gemm = work.gemms.front();
  (is_divided_by_columns(shape.strategy, unit, part) ? gemm.n : gemm.m) /= steps;
  // The suite adds the residual to each piece of columns, in two launches, and the bias in one.
  const bool suite_adds = part == UnitPart::after && implementation == Implementation::suite;
  const int kernels = suite_adds ? (model.biases() == Biases::all ? 4 : 3) : 1;
  if (step + 1 < steps) return {.gemms = {gemm}, .kernels = kernels};
  if (kernels > 1) work.kernels = kernels;
  return work;
}

double exchange_bytes(const ModelConfig& model, const Shape& shape, Exchange exchange) {
  return Widths(model, shape).bytes(rule_of(exchange).width);
}

std::vector<SavedTensor> saved_tensors(const ModelConfig& model, const Shape& shape,
                                       Implementation implementation, Unit unit) {
  if (is_vision(unit) && !model.has_vision()) return {};
  return UnitOnRank(model, shape, implementation, unit).saved();
}

double optimizer_bytes(Implementation implementation, int gradient_bytes, bool copied) {
  // AdamW reads the gradient, reads and writes master weight and two moments (28), then the weights are cast
  // to half precision (6, or 2 in the same kernel).
  constexpr double kAdam = 28;
  switch (implementation) {
    case Implementation::suite:
      return kAdam + 2;
    case Implementation::megatron:  // also zeroing, the gradients' norm, clipping
      return kAdam + 6 + 4 + 4 + 8;
    case Implementation::megatron_te:  // also the norm; clipping is rare
    case Implementation::megatron_te_2_18:
      return copied ? gradient_bytes + kFp32 + kAdam + 6 + kFp32
                    : kAdam - kFp32 + gradient_bytes + 6 + gradient_bytes;
    case Implementation::megatron_2022:  // also unscaling, for fp16's loss scale
      return kAdam + 6 + 4 + 4 + 8 + 8;
  }
  return 0;
}

double hidden_bytes(const ModelConfig& model, const Shape& shape) {
  return Widths(model, shape).bytes(Width::hidden);
}

double reduced_bytes(const ModelConfig& model, const Shape& shape, Unit unit, UnitPass pass) {
  if (!is_vision(unit)) return hidden_bytes(model, shape);
  const Shape own = vision_shape(shape);
  if (unit == Unit::merger && pass == UnitPass::F) return hidden_bytes(model, own) / kTokensMerged;
  return hidden_bytes(model.encoder(), own);
}

void check_shardable(const ModelConfig& model, int tp) {
  const auto check = [&](const char* what, int size, const char* remedy = "use a divisor") {
    if (size % tp != 0)
      throw InputError("", "parallel.tp",
                       std::to_string(tp) + " does not divide the " + std::to_string(size) + " " + what +
                           " of " + model.name,
                       remedy);
  };
  check("attention heads", model.q_heads);
  check("key and value heads", model.kv_heads);
  check("feed-forward columns", model.ffn);
  check("vocabulary entries", model.vocab,
        "use a divisor, or pad the model's vocab_size (--set model.vocab_size=N), as Megatron-LM does");
  if (!model.has_vision()) return;
  check("attention heads of the vision encoder", model.vision.heads);
  check("feed-forward columns of the vision encoder", model.vision.ffn);
  check("merged columns of the vision encoder", kTokensMerged * model.vision.hidden);
}

void check_shared_vocabulary(const ModelConfig& model, int tp, int ranks) {
  if (model.vocab % (tp * ranks) != 0)
    throw InputError("", "parallel.pp",
                     std::to_string(ranks) + " ranks times " + std::to_string(tp) + " of parallel.tp do not" +
                         " divide the " + std::to_string(model.vocab) + " vocabulary entries of " +
                         model.name,
                     "use divisors, or pad the model's vocab_size (--set model.vocab_size=N)");
}

void check_divisible(const ModelConfig& model, const Strategy& strategy, int seq, int vision_tokens) {
  if (model.positions > 0 && seq > model.positions)
    throw InputError("", "seq",
                     "is " + std::to_string(seq) + ", and " + model.name + " has " +
                         std::to_string(model.positions) + " learned positions",
                     "use a shorter seq, or more max_position_embeddings");
  if (model.has_vision() &&
      (vision_tokens <= 0 || vision_tokens % kTokensMerged != 0 || vision_tokens / kTokensMerged > seq))
    throw InputError("", "vision_tokens",
                     std::to_string(vision_tokens) + " do not make whole tokens among the " +
                         std::to_string(seq) + " of seq, one of " + std::to_string(kTokensMerged),
                     "use a multiple, at most " + std::to_string(kTokensMerged) + " times seq");
  if (strategy.cp > 1 && seq % (2 * strategy.cp) != 0)
    throw InputError("", "parallel.cp",
                     "cannot divide " + std::to_string(seq) + " tokens into two pieces for each of " +
                         std::to_string(strategy.cp) + " ranks",
                     "make seq a multiple of 2 * parallel.cp");
  for (const auto& [what, all] : {std::pair{"attention", model.q_heads}, {"key and value", model.kv_heads}})
    if (const int heads = all / strategy.tp; strategy.exchanges_heads() && heads % strategy.cp != 0)
      throw InputError("", "parallel.cp_method",
                       "is all-to-all, and parallel.cp " + std::to_string(strategy.cp) +
                           " does not divide the " + std::to_string(heads) + " " + what + " heads of " +
                           model.name + " on each of " + std::to_string(strategy.tp) +
                           " tensor-parallel ranks",
                       "use a divisor for parallel.cp, less parallel.tp, or the method ring");
}

}  // namespace stp
