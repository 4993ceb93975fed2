#include "stp/runtime/unit_run.h"

#include <array>
#include <stdexcept>
#include <utility>

#include "stp/runtime/head.h"

namespace stp {
namespace {

// Whether the tensors of a forward are kept beyond its pass: not if its whole layer is recomputed later.
bool keeps(const Recompute& recompute, const Op& op) {
  return !recompute.whole(op.layer) || op.recomputed() || op.unit == Unit::head;
}

// For I of the merger, which gets the gradient of the language model's input: keeps it for the embedding's W,
// and returns the rows of images.
Tensor keep_for_embedding(RankState& rank, const Op& op, Tensor gradient) {
  Tensor images = image_rows(*rank.context, gradient);
  rank.device.retag(gradient, MemoryKind::saved);
  rank.saved[{Unit::embedding, op.chunk, 0, op.microbatch}][Saved::output_gradient] = std::move(gradient);
  return images;
}

// The norm's output, or its gradient, as rows of the first linear layer.
Tensor linear_rows(Unit unit, const Tensor& rows) {
  if (unit != Unit::merger) return rows;
  return rows.part(0, rows.rows / kTokensMerged, rows.columns * kTokensMerged);
}

kernel::Pointwise pointwise(Activation activation) {
  switch (activation) {
    case Activation::gelu:
      return kernel::Pointwise::gelu;
    case Activation::gelu_tanh:
      return kernel::Pointwise::gelu_tanh;
    case Activation::squared_relu:
      return kernel::Pointwise::squared_relu;
    case Activation::swiglu:
      break;
  }
  throw std::logic_error("a gated activation has two matrices");
}

}  // namespace

bool begins(const Op& op) {
  return op.step == 0 && (op.part == UnitPart::whole || op.part == UnitPart::before);
}

void norm_of_forward(RankState& rank, Stream& stream, const Op& op, Tensor input) {
  const UnitContext& context = rank.context_of(op.unit);
  const auto kind = [](bool kept) { return kept ? MemoryKind::saved : MemoryKind::working; };
  const bool kept = keeps(context.strategy.recompute, op);
  norm_forward(context, stream, rank.parameters(op), std::move(input), rank.saved_unit(op), kind(kept),
               kind(kept && !is_recomputed(context.strategy.recompute, op.unit, ComponentKind::norm)));
}

void norm_again(RankState& rank, Stream& stream, const Op& op) {
  SavedUnit& saved = rank.saved_unit(op);
  if (!is_recomputed(rank.context->strategy.recompute, op.unit, ComponentKind::norm) ||
      saved[Saved::norm_output])
    return;
  norm_forward(*rank.context, stream, rank.parameters(op), saved[Saved::norm_input], saved, MemoryKind::saved,
               MemoryKind::saved);
}

UnitRun::UnitRun(RankState& rank, const Op& op)
    : rank_(rank),
      op_(op),
      context_(rank.context_of(op.unit)),
      parameters_(rank.parameters(op)),
      saved_(rank.saved_unit(op)),
      stream_(context_.compute),
      kernels_(context_.device.kernels()),
      overlaps_(context_.strategy.overlaps() && op.part != UnitPart::whole),
      rows_(context_.tokens() / (op.unit == Unit::merger ? kTokensMerged : 1)),
      step_{op.step, op.step == 0, op.step + 1 == context_.strategy.steps(op.unit, op.unit_pass, op.part)} {}

const UnitRun::Runs& UnitRun::runs_of(const Component& component) {
  static constexpr Runs kOutput{&UnitRun::make_output, &UnitRun::second_linear_backward};
  static constexpr std::array<Runs, kComponentKinds> kByKind{{
      {&UnitRun::norm_forward},
      {&UnitRun::first_linear_forward, &UnitRun::first_linear_backward},
      {},  // split
      {&UnitRun::query_key_norm_forward, &UnitRun::query_key_norm_backward},
      {&UnitRun::rotary_forward, &UnitRun::rotary_backward},
      {&UnitRun::core_forward, &UnitRun::core_backward},
      {&UnitRun::join_forward},
      {&UnitRun::activation_forward, &UnitRun::activation_backward},
      {},  // residual: the norm's kernel adds its gradient
      {},  // loss
      {&UnitRun::lookup_forward},
      {},  // exchange
  }};
  const bool of_output = component.kind == ComponentKind::linear && component.width == Width::output;
  return of_output ? kOutput : kByKind[static_cast<size_t>(component.kind)];
}

// Tensors of a first forward that a backward makes again are kept for this pass only.
void UnitRun::forward() {
  if (begins(op_) && context_.strategy.sequence_parallel && !overlaps_ && op_.input != kNoValue)
    gathered_ = rank_.take(op_.input);
  const MemoryKind kind = keeps(context_.strategy.recompute, op_) ? MemoryKind::saved : MemoryKind::working;
  for (const Component& component : components(op_.unit)) {
    if (!is_here(component, UnitPass::F)) continue;
    const bool made_again = component.recomputed(context_.strategy.recompute) && !op_.recomputed();
    kind_ = made_again ? MemoryKind::working : kind;
    if (const Run run = runs_of(component).forward) (this->*run)(component);
  }
  release(gathered_);
  if (overlaps_ && op_.part == UnitPart::before && step_.last) release(saved_[Between::ring]);
  if (!output_) return;  // there is another part, or a loss
  (overlaps_ ? saved_[Between::piece] : rank_.values[op_.output]) = output_;
  if (!op_.recomputed() && step_.last) drop_recomputed();
}

// With sequence parallelism the norm comes before the gathering of its output.
void UnitRun::norm_forward(const Component&) {
  if (op_.part == UnitPart::norm || !context_.strategy.sequence_parallel)
    norm_of_forward(rank_, stream_, op_,
                    op_.input == kNoValue ? saved_[Saved::norm_input] : rank_.take(op_.input));
}

void UnitRun::join_forward(const Component&) { release_kv(context_, stream_, saved_); }

// The first linear layer's input: all rows, or in a tensor-parallel ring the rows of the step.
Tensor UnitRun::normed() {
  if (gathered_) return gathered_;
  if (op_.unit_pass == UnitPass::F && overlaps_) return ring_rows(context_, op_, saved_);
  return all_normed();
}

// All rows of the norm's output, for weight gradients and recomputation.
Tensor UnitRun::all_normed() {
  if (!saved_[Between::gathered]) return saved_[Saved::norm_output];
  stream_.wait(saved_.gathered_at);
  return saved_[Between::gathered];
}

// The rows of a part's output `out` that `in` makes: all rows, or those of the step.
Tensor UnitRun::rows_for(const Tensor& in, const Tensor& out) const {
  return in.rows == out.rows ? out : context_.rows_of_step(out, step_.index);
}

// Makes the first tensor that the component keeps, or the logits, which the loss turns into their gradient.
void UnitRun::first_linear_forward(const Component& linear) {
  Tensor& out = saved_[linear.keeps.empty() ? *linear.weights->gradient : linear.keeps.front().which];
  if (step_.first) out = make(kind_, weight(linear).weight.rows);
  const Tensor in = linear_rows(op_.unit, normed());
  kernels_.issue(
      stream_,
      kernel::Gemm{.transpose_b = true, .a = in, .b = weight(linear).weight, .c = rows_for(in, out)});
  if (step_.last && has_bias(linear) && !rotary_adds_bias(context_.training.model, op_.unit))
    kernels_.issue(stream_, kernel::AddBias{.factor = 1, .bias = bias(linear).weight, .x = out});
}

// Makes the output of the unit's last linear layer, with 1/t of the residual and of the bias, so that the
// group's sum contains them once.
void UnitRun::make_output(const Component& linear) {
  if (overlaps_) return make_output_columns(linear);
  if (op_.unit == Unit::patches) {
    saved_[Saved::patches] = std::exchange(rank_.patches.at(op_.microbatch), {});
    context_.device.retag(saved_[Saved::patches], MemoryKind::saved);
  }
  const bool shares_residual = has_residual() && !context_.strategy.sequence_parallel;
  const Tensor& residual = saved_[Saved::norm_input];
  output_ = make(MemoryKind::working, weight(linear).weight.rows);
  kernels_.issue(stream_, kernel::Gemm{.transpose_b = true,
                                       .a = saved_[*linear.weights->input],
                                       .b = weight(linear).weight,
                                       .beta = shares_residual ? 1.0 / context_.tp() : 0,
                                       .c = output_,
                                       .from = shares_residual ? residual : Tensor{}});
  if (has_residual() && context_.strategy.sequence_parallel)
    kernels_.issue(
        stream_,
        kernel::AddRows{.in = residual, .first = context_.tp_index * context_.own_tokens(), .out = output_});
  if (has_bias(linear))
    kernels_.issue(stream_,
                   kernel::AddBias{.factor = 1.0 / context_.tp(), .bias = bias(linear).weight, .x = output_});
}

// Makes the columns of the output that belong to a step.
void UnitRun::make_output_columns(const Component& linear) {
  const Tensor &in = saved_[*linear.weights->input], &residual = saved_[Saved::norm_input];
  const int64_t columns = residual.columns / kPipelineSteps, first = op_.step * columns;
  output_ = make(MemoryKind::working, columns);
  kernels_.issue(stream_,
                 kernel::Gemm{.transpose_b = true,
                              .a = in,
                              .b = weight(linear).weight.part(first * in.columns, columns, in.columns),
                              .c = output_});
  Tensor own = context_.make(stream_, MemoryKind::working, residual.rows, columns);
  context_.copy_columns(stream_, residual, first, own, 0, columns);
  kernels_.issue(stream_, kernel::AddRows{
                              .in = own, .first = context_.tp_index * context_.own_tokens(), .out = output_});
  release(own);
  if (has_bias(linear))
    kernels_.issue(stream_, kernel::AddBias{.factor = 1.0 / context_.tp(),
                                            .bias = bias(linear).weight.part(first, 1, columns),
                                            .x = output_});
}

// Makes this rank's summand, which is zero for negative tokens. Positions are in the first rank's.
void UnitRun::lookup_forward(const Component&) {
  const ParameterState& table = with_role(parameters_, Role::first);
  output_ = make(MemoryKind::working, table.weight.columns);
  kernels_.issue(stream_, kernel::EmbeddingForward{.tokens = rank_.tokens[op_.microbatch],
                                                   .table = table.weight,
                                                   .first = table.shard * table.weight.rows,
                                                   .out = output_});
  if (adds_positions()) {
    Tensor positions = make(MemoryKind::working, table.weight.columns);
    kernels_.issue(stream_, kernel::EmbeddingForward{.tokens = rank_.positions,
                                                     .table = with_role(parameters_, Role::second).weight,
                                                     .first = 0,
                                                     .out = positions});
    kernels_.issue(stream_, kernel::AddRows{.in = positions, .first = 0, .out = output_});
    release(positions);
  }
  if (op_.input != kNoValue) add_images(context_, rank_.take(op_.input), output_);
}

void UnitRun::activation_forward(const Component&) {
  const bool gated = context_.training.model.gated();
  const Tensor& in = saved_[Saved::fc1_output];
  Tensor& out = saved_[Saved::activation] = make(kind_, in.columns / (gated ? 2 : 1));
  if (gated)
    kernels_.issue(stream_, kernel::SwigluForward{.gate_up = in, .out = out});
  else
    kernels_.issue(stream_,
                   kernel::ActivationForward{
                       .function = pointwise(context_.training.model.activation()), .x = in, .out = out});
}

// After a first forward: releases the tensors that a backward makes again; with full recomputation all but
// the layer's input.
void UnitRun::drop_recomputed() {
  const Recompute& again = context_.strategy.recompute;
  const bool whole = again.whole(op_.layer);
  for (const Component& component : components(op_.unit))
    if (component.recomputed(again) || whole)
      for (const Kept& kept : component.keeps)
        if (kept.dropped) release(saved_[kept.which]);
  if (!whole) return;
  if (op_.unit == Unit::attn)
    context_.device.retag(saved_[Saved::norm_input], MemoryKind::saved);
  else
    release(saved_[Saved::norm_input]);
}

void UnitRun::input_gradient() {
  if (begins(op_)) {
    norm_again(rank_, stream_, op_);
    if (is_recomputed(context_.strategy.recompute, op_.unit, ComponentKind::norm) &&
        saved_[Between::gathered])
      stream_.wait(saved_.gathered_at);  // its statistics are made beside this stream
    if (op_.input != kNoValue && !overlaps_) take_output_gradient();
  }
  const auto all = components(op_.unit);
  for (size_t i = all.size(); i-- > 0;)
    if (const Run run = runs_of(all[i]).backward; run != nullptr && is_here(all[i], UnitPass::I))
      (this->*run)(all[i]);
  const bool recomputed = (op_.part == UnitPart::whole || op_.part == UnitPart::before) && step_.last;
  if (recomputed && op_.pass == Pass::I) release(saved_[Between::gathered]);  // W gathers it again
  if (!gradient_) return;                                                     // there is another part
  // With sequence parallelism the norm's backward comes after the reduce-scatter; of S, when all ranks' are
  // known.
  if (!context_.strategy.sequence_parallel && op_.pass != Pass::S)
    norm_backward(context_, stream_, parameters_, saved_, has_residual() ? 1.0 / context_.tp() : 0,
                  has_residual() ? saved_[Saved::output_gradient] : Tensor{}, gradient_);
  rank_.values[op_.output] = gradient_;
}

void UnitRun::take_output_gradient() {
  Tensor& gradient = saved_[Saved::output_gradient];
  gradient = rank_.take(op_.input);
  if (op_.unit == Unit::merger && op_.pass == Pass::I)
    gradient = keep_for_embedding(rank_, op_, std::move(gradient));
  context_.device.retag(gradient, MemoryKind::saved);
}

// Makes the gradient of the norm's output.
void UnitRun::first_linear_backward(const Component& linear) {
  gradient_ = context_.make(stream_, MemoryKind::working, context_.tokens(), context_.training.model.hidden);
  Tensor own = op_.pass == Pass::S ? exponentials(rank_, op_) : Tensor{};
  kernels_.issue(stream_, kernel::Gemm{.a = own ? own : saved_[*linear.weights->gradient],
                                       .b = weight(linear).weight,
                                       .c = linear_rows(op_.unit, gradient_)});
  release(own);
}

// Makes the gradient of the second linear layer's input, or a step's rows of it. Recomputation comes after
// it, so that it hides the gathering of the norm's output.
void UnitRun::second_linear_backward(const Component& linear) {
  Tensor& gradient = saved_[Between::core_gradient];
  if (step_.first) {
    saved_[Saved::inner_gradient] = make(MemoryKind::saved, weight(first_linear()).weight.rows);
    gradient = make(MemoryKind::working, weight(linear).weight.columns);
  }
  const Tensor rows = overlaps_ ? ring_rows(context_, op_, saved_) : saved_[Saved::output_gradient];
  kernels_.issue(stream_, kernel::Gemm{.a = rows, .b = weight(linear).weight, .c = rows_for(rows, gradient)});
  if (step_.last) run_again();
}

// In parts, recomputations of the core are separate ops. All else is made of all rows.
void UnitRun::run_again() {
  step_ = {};
  kind_ = MemoryKind::saved;
  for (const Component& again : components(op_.unit)) {
    const bool own_op = again.kind == ComponentKind::norm ||
                        (again.kind == ComponentKind::core && op_.part != UnitPart::whole);
    const Run run = runs_of(again).forward;
    if (run != nullptr && again.recomputed(context_.strategy.recompute) && again.part != UnitPart::after &&
        !own_op)
      (this->*run)(again);
  }
}

void UnitRun::activation_backward(const Component&) {
  Tensor &in = saved_[Saved::fc1_output], &gradient = saved_[Between::core_gradient];
  const Tensor& in_gradient = saved_[Saved::inner_gradient];
  if (context_.training.model.gated())
    kernels_.issue(stream_, kernel::SwigluBackward{
                                .gate_up = in, .out_gradient = gradient, .gate_up_gradient = in_gradient});
  else
    kernels_.issue(stream_,
                   kernel::ActivationBackward{.function = pointwise(context_.training.model.activation()),
                                              .x = in,
                                              .out_gradient = gradient,
                                              .x_gradient = in_gradient});
  release(gradient);
  release(in);
}

void UnitRun::weight_gradients() {
  const bool both = op_.kind == OpKind::weight_gradients, early = op_.unit_pass == UnitPass::W_early;
  for (const UnitPass part : {UnitPass::W_early, UnitPass::W_late})
    for (const Component& component : components(op_.unit)) {
      if (!component.weights || component.weights->pass != part) continue;
      if (!both && early != (part == UnitPass::W_early)) continue;
      // With a vision encoder, I has kept the embedding's gradient.
      Tensor& out_gradient = saved_[component.weights->gradient.value_or(Saved::output_gradient)];
      if (!out_gradient) out_gradient = rank_.take(op_.input);
      if (component.kind == ComponentKind::lookup)
        table_gradient(out_gradient);
      else
        linear_gradient(component, out_gradient);
    }
  if (!both && early) return;
  if (op_.pass == Pass::U) release_norm(context_, stream_, saved_);
  rank_.saved.erase({op_.unit, op_.chunk, op_.layer, op_.microbatch});
}

void UnitRun::linear_gradient(const Component& linear, Tensor& out_gradient) {
  const TrainedWeights& weights = *linear.weights;
  const bool of_norm = weights.input == Saved::norm_output;
  Tensor& in = saved_[*weights.input];
  // All ranks have the whole gradient of the patches; each adds one t-th to the group's sum.
  kernels_.issue(stream_, kernel::Gemm{.transpose_a = true,
                                       .alpha = weights.gradient ? 1 : 1.0 / context_.tp(),
                                       .a = out_gradient,
                                       .b = of_norm ? linear_rows(op_.unit, all_normed()) : in,
                                       .beta = 1,
                                       .c = weight(linear).gradient});
  // All ranks have the whole gradient of an undivided bias; one of them adds it to the sum.
  if (has_bias(linear) && (weights.pass == UnitPass::W_late || context_.tp_index == 0))
    kernels_.issue(stream_,
                   kernel::AddColumnSums{.gradient = out_gradient, .bias_gradient = bias(linear).gradient});
  if (!of_norm) release(in);
  release(out_gradient);
  if (!of_norm) return;
  release(in);
  release(saved_[Between::gathered]);
}

// B of the embedding continues with the rows of the gradient that belong to images.
void UnitRun::table_gradient(Tensor& out_gradient) {
  const ParameterState& table = with_role(parameters_, Role::first);
  if (op_.output != kNoValue) rank_.values[op_.output] = image_rows(context_, out_gradient);
  kernels_.issue(stream_, kernel::EmbeddingBackward{.tokens = rank_.tokens[op_.microbatch],
                                                    .out_gradient = out_gradient,
                                                    .first = table.shard * table.weight.rows,
                                                    .table_gradient = table.gradient});
  if (adds_positions())
    kernels_.issue(
        stream_, kernel::EmbeddingBackward{.tokens = rank_.positions,
                                           .out_gradient = out_gradient,
                                           .first = 0,
                                           .table_gradient = with_role(parameters_, Role::second).gradient});
  release(out_gradient);
}

}  // namespace stp
