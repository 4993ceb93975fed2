// The components of attention between its two linear layers.
#include "stp/runtime/unit_run.h"

namespace stp {
namespace {

// The shape that the core works on: with an all-to-all, whole sequences of a share of the heads.
AttentionShape core_shape(const UnitContext& context) {
  AttentionShape shape = context.attention_shape();
  if (!context.strategy.exchanges_heads()) return shape;
  shape.seq *= context.cp();
  shape.q_heads /= context.cp();
  shape.kv_heads /= context.cp();
  shape.cp = 1;
  shape.cp_index = 0;
  return shape;
}

// What a step of a ring's core sees of the keys and values of the rank `step` places before; of its own all.
AttentionBlock block_of_step(const UnitContext& context, const AttentionShape& shape, int step) {
  return attention_block(shape, (context.cp_index - step + context.cp()) % context.cp());
}
Tensor kv_of_step(SavedUnit& saved, int step) { return step == 0 ? Tensor{} : saved[OfSteps::kv][step]; }

}  // namespace

// Of q, then of k: its copy, by heads, is normed; the result replaces it.
void UnitRun::query_key_norm_forward(const Component&) {
  if (!step_.last || !context_.training.model.variant.query_key_norm) return;
  const AttentionShape shape = context_.attention_shape();
  saved_[Saved::query_key_norm_input] = make(kind_, shape.q_columns() + shape.kv_columns());
  saved_[Saved::query_key_norm_statistics] =
      context_.device.allocate(stream_, kind_, statistics_type(context_.training.type), shape.tokens(),
                               shape.q_heads + shape.kv_heads);
  for (const bool of_k : {false, true}) {
    const HeadNorm norm = head_norm(of_k);
    Tensor out = make(MemoryKind::working, norm.columns);
    context_.copy_columns(stream_, saved_[Saved::qkv], norm.column, norm.input.part(0, rows_, norm.columns),
                          0, norm.columns);
    kernels_.issue(stream_, kernel::NormForward{.centred = false,
                                                .x = norm.input,
                                                .gain = norm.gain,
                                                .bias = {},
                                                .epsilon = context_.training.model.norm_epsilon,
                                                .y = out.part(0, norm.input.rows, norm.input.columns),
                                                .statistics = norm.statistics});
    context_.copy_columns(stream_, out, 0, saved_[Saved::qkv], norm.column, norm.columns);
    release(out);
  }
}

void UnitRun::query_key_norm_backward(const Component&) {
  if (!context_.training.model.variant.query_key_norm) return;
  for (const bool of_k : {false, true}) {
    const HeadNorm norm = head_norm(of_k);
    Tensor copy = make(MemoryKind::working, norm.columns);
    const Tensor gradient = copy.part(0, norm.input.rows, norm.input.columns);
    context_.copy_columns(stream_, saved_[Saved::inner_gradient], norm.column, copy, 0, norm.columns);
    kernels_.issue(stream_, kernel::NormBackward{.centred = false,
                                                 .dy = gradient,
                                                 .x = norm.input,
                                                 .gain = norm.gain,
                                                 .statistics = norm.statistics,
                                                 .residual_factor = 0,
                                                 .residual = {},
                                                 .dx = gradient,
                                                 .gain_gradient = norm.gain_gradient,
                                                 .bias_gradient = {}});
    context_.copy_columns(stream_, copy, 0, saved_[Saved::inner_gradient], norm.column, norm.columns);
    release(copy);
  }
  release(saved_[Saved::query_key_norm_input]);
  release(saved_[Saved::query_key_norm_statistics]);
}

UnitRun::HeadNorm UnitRun::head_norm(bool of_k) {
  const AttentionShape shape = context_.attention_shape();
  const int64_t q = shape.q_columns(), columns = of_k ? shape.kv_columns() : q, dim = shape.head_dim,
                heads = shape.tokens() * columns / dim, before = of_k ? shape.tokens() * q : 0;
  const ParameterState& gains = with_role(parameters_, Role::query_key_norm);
  return {.column = of_k ? q : 0,
          .columns = columns,
          .input = saved_[Saved::query_key_norm_input].part(before, heads, dim),
          .statistics = saved_[Saved::query_key_norm_statistics].part(before / dim, heads, 1),
          .gain = gains.weight.part(of_k ? dim : 0, 1, dim),
          .gain_gradient = gains.gradient.part(of_k ? dim : 0, 1, dim)};
}

void UnitRun::rotary_forward(const Component&) {
  const ModelConfig& model = context_.training.model;
  if (!step_.last || !model.rotary()) return;
  const bool adds_bias = has_bias(first_linear()) && rotary_adds_bias(model, op_.unit);
  kernels_.issue(stream_, kernel::BiasRopeForward{.shape = context_.attention_shape(),
                                                  .theta = model.rope_theta,
                                                  .bias = adds_bias ? bias(first_linear()).weight : Tensor{},
                                                  .qkv = saved_[Saved::qkv]});
}

// The core's own output: with an all-to-all, for all ranks' rows.
Tensor& UnitRun::core_output() {
  return saved_[context_.strategy.exchanges_heads() ? Saved::core_output : Saved::attention_output];
}

// Runs a step of the core. The first step makes the results; without a ring it is the only one.
void UnitRun::core_forward(const Component&) {
  const int step = step_.index;
  const AttentionShape shape = core_shape(context_);
  Tensor &out = core_output(), &log_sum_exp = saved_[Saved::log_sum_exp];
  if (step == 0) {
    out = context_.make(stream_, kind_, shape.tokens(), shape.q_columns());
    log_sum_exp = context_.device.allocate(stream_, kind_, statistics_type(context_.training.type),
                                           shape.tokens(), shape.q_heads);
  }
  kernels_.issue(stream_, kernel::AttentionForward{.shape = shape,
                                                   .qkv = saved_[Saved::qkv],
                                                   .out = out,
                                                   .log_sum_exp = log_sum_exp,
                                                   .block = block_of_step(context_, shape, step),
                                                   .kv = kv_of_step(saved_, step)});
}

// Runs a step of the core. The gradient of q is summed here, the gradients of k and v in the ring.
void UnitRun::core_backward(const Component&) {
  const AttentionShape shape = core_shape(context_);
  const int step = op_.step;
  if (step == 0) {
    saved_[OfSteps::kv_gradients].assign(context_.cp(), {});
    saved_[OfSteps::kv_sums].assign(context_.cp() + 1, {});
  }
  Tensor& gradient = saved_[Saved::inner_gradient];
  if (shape.cp == 1) gradient = gradient.part(0, shape.tokens(), gradient.elements() / shape.tokens());
  Tensor kv_gradient;
  if (shape.cp > 1)
    kv_gradient = saved_[OfSteps::kv_gradients][step] = make(MemoryKind::working, 2 * shape.kv_columns());
  kernels_.issue(stream_, kernel::AttentionBackward{.shape = shape,
                                                    .qkv = saved_[Saved::qkv],
                                                    .out = core_output(),
                                                    .log_sum_exp = saved_[Saved::log_sum_exp],
                                                    .out_gradient = saved_[Between::core_gradient],
                                                    .qkv_gradient = gradient,
                                                    .block = block_of_step(context_, shape, step),
                                                    .kv = kv_of_step(saved_, step),
                                                    .kv_gradient = step == 0 ? Tensor{} : kv_gradient});
  if (step == 0 && kv_gradient)
    context_.copy_columns(stream_, gradient, shape.q_columns(), kv_gradient, 0, 2 * shape.kv_columns());
}

// Runs after the core's last step and exchange.
void UnitRun::rotary_backward(const Component&) {
  const AttentionShape shape = context_.attention_shape();
  release_kv(context_, stream_, saved_);
  if (Tensor& own = saved_[OfSteps::kv_sums].back()) {
    context_.copy_columns(stream_, own, 0, saved_[Saved::inner_gradient], shape.q_columns(),
                          2 * shape.kv_columns());
    release(own);
  }
  release(saved_[Between::core_gradient]);
  for (const Saved done : {Saved::core_output, Saved::qkv, Saved::log_sum_exp}) release(saved_[done]);
  if (context_.training.model.rotary())
    kernels_.issue(stream_, kernel::RopeBackward{.shape = shape,
                                                 .theta = context_.training.model.rope_theta,
                                                 .qkv_gradient = saved_[Saved::inner_gradient]});
}

}  // namespace stp
