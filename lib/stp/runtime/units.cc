#include "stp/runtime/units.h"

#include <utility>

#include "stp/model/components.h"

namespace stp {
namespace {

// A unit's norm comes first; its bias, if it has one, last.
const ParameterState& norm_of(const std::vector<ParameterState>& parameters) { return parameters.front(); }
const ParameterState& norm_bias_of(const std::vector<ParameterState>& parameters) {
  return parameters.back();
}

// Whether norms and linear layers have biases.
bool of_encoder(const UnitContext& context) { return context.training.model.family == Family::vit; }

AttentionShape attention_shape(const UnitContext& context) {
  const ModelConfig& model = context.training.model;
  return {.batch = context.training.microbatch_size,
          .seq = context.training.own_seq(),
          .q_heads = model.q_heads / context.tp(),
          .kv_heads = model.kv_heads / context.tp(),
          .head_dim = model.head_dim,
          .cp = context.cp(),
          .cp_index = context.cp_index,
          .causal = model.causal()};
}

// What the core works on: with an all-to-all, whole sequences of a share of the heads.
AttentionShape core_shape(const UnitContext& context) {
  AttentionShape shape = attention_shape(context);
  if (!context.division.exchanges_heads()) return shape;
  shape.seq *= context.cp();
  shape.q_heads /= context.cp();
  shape.kv_heads /= context.cp();
  shape.cp = 1;
  shape.cp_index = 0;
  return shape;
}

Tensor in_rows(const Tensor& tensor, int64_t rows) { return tensor.part(0, rows, tensor.elements() / rows); }

// The norm's output, or its gradient, as rows of the first linear layer.
Tensor linear_rows(Unit unit, const Tensor& rows) {
  if (unit != Unit::merger) return rows;
  return rows.part(0, rows.rows / kTokensMerged, rows.columns * kTokensMerged);
}

// One unit pass on the compute stream.
class ComputePass {
 public:
  explicit ComputePass(const UnitContext& context, Unit unit = Unit::attn)
      : context_(context),
        unit_(unit),
        kernels_(context.device.kernels()),
        stream_(context.compute),
        rows_(context.tokens() / (unit == Unit::merger ? kTokensMerged : 1)) {}

  Tensor make(MemoryKind kind, int64_t columns) { return context_.make(stream_, kind, rows_, columns); }
  void release(Tensor& tensor) {
    if (tensor) context_.device.release(stream_, tensor);
  }

  // out = in · weightᵀ (+ out)
  void linear(const Tensor& in, const ParameterState& weight, const Tensor& out, bool add = false) {
    kernels_.issue(
        stream_,
        kernel::Gemm{.transpose_b = true, .a = in, .b = weight.weight, .beta = add ? 1.0 : 0.0, .c = out});
  }
  void linear_input_gradient(const Tensor& out_gradient, const ParameterState& weight,
                             const Tensor& gradient) {
    kernels_.issue(stream_, kernel::Gemm{.a = out_gradient, .b = weight.weight, .c = gradient});
  }
  void linear_weight_gradient(const Tensor& out_gradient, const Tensor& in, const ParameterState& weight) {
    kernels_.issue(
        stream_,
        kernel::Gemm{.transpose_a = true, .a = out_gradient, .b = in, .beta = 1, .c = weight.gradient});
  }
  // The unit's last linear, or the columns of it that a step makes, and 1/t of the residual and of the bias,
  // so that the group's sum has them once.
  Tensor output(const Tensor& in, const ParameterState& weight, const Tensor& residual, const Op& op) {
    if (context_.division.overlaps()) return output_columns(in, weight, residual, op.step);
    Tensor out = make(MemoryKind::working, weight.weight.rows);
    if (find_component(unit_, ComponentKind::residual) == nullptr) {
      linear(in, weight, out);
    } else if (context_.sequence_parallel) {
      linear(in, weight, out);
      kernels_.issue(
          stream_,
          kernel::AddRows{.in = residual, .first = context_.tp_index * context_.own_tokens(), .out = out});
    } else {
      kernels_.issue(stream_, kernel::Scale{.factor = 1.0 / context_.tp(), .in = residual, .out = out});
      linear(in, weight, out, true);
    }
    return out;
  }
  Tensor output_columns(const Tensor& in, const ParameterState& weight, const Tensor& residual, int step) {
    const int64_t columns = residual.columns / kPipelineSteps;
    Tensor out = make(MemoryKind::working, columns);
    kernels_.issue(stream_,
                   kernel::Gemm{.transpose_b = true,
                                .a = in,
                                .b = weight.weight.part(step * columns * in.columns, columns, in.columns),
                                .c = out});
    Tensor own = context_.make(stream_, MemoryKind::working, residual.rows, columns);
    kernels_.issue(
        stream_,
        kernel::CopyColumns{
            .from = residual, .from_column = step * columns, .to = own, .to_column = 0, .count = columns});
    kernels_.issue(
        stream_, kernel::AddRows{.in = own, .first = context_.tp_index * context_.own_tokens(), .out = out});
    release(own);
    return out;
  }
  void add_bias(double factor, const ParameterState& bias, const Tensor& to) {
    kernels_.issue(stream_, kernel::AddBias{.factor = factor, .bias = bias.weight, .x = to});
  }
  // All rows of the norm's output, for weight gradients.
  const Tensor& normed(const SavedUnit& saved) {
    if (!saved[Between::gathered]) return saved[Saved::norm_output];
    stream_.wait(saved.gathered_at);
    return saved[Between::gathered];
  }

  Kernels& kernels() { return kernels_; }
  Stream& stream() { return stream_; }

 private:
  const UnitContext& context_;
  const Unit unit_;
  Kernels& kernels_;
  Stream& stream_;
  const int64_t rows_;  // between the linear layers
};

// The step of a part, and whether it is the part's first or last.
struct Step {
  int index = 0;
  bool first = true, last = true;

  Step() = default;
  Step(const UnitContext& context, const Op& op)
      : index(op.step),
        first(op.step == 0),
        last(op.step + 1 == context.division.steps(op.unit, op.unit_pass, op.part)) {}
};

// The rows of `all` that belong to the tensor-parallel rank `step` places before.
Tensor rows_of_step(const UnitContext& context, const Tensor& all, int step) {
  const int owner = (context.tp_index - step + context.tp()) % context.tp();
  const int64_t rows = context.own_tokens();
  return all.part(owner * rows * all.columns, rows, all.columns);
}
// Of a part's output that `in` makes rows of: all, or those of the step.
Tensor rows_for(const UnitContext& context, const Tensor& in, const Tensor& out, const Step& step) {
  return in.rows == out.rows ? out : rows_of_step(context, out, step.index);
}

// Whose keys and values a step of the core works on.
int owner(const UnitContext& context, int step) {
  return (context.cp_index - step + context.cp()) % context.cp();
}

// The core's own output: with an all-to-all that of all ranks' rows.
Tensor& core_output(const UnitContext& context, SavedUnit& saved) {
  return context.division.exchanges_heads() ? saved[Saved::core_output] : saved[Saved::attention_output];
}

// A step of the core; the first makes the results. Without a ring there is no other.
void attention_core(const UnitContext& context, int step, SavedUnit& saved, MemoryKind kind) {
  ComputePass pass(context);
  const AttentionShape shape = core_shape(context);
  if (step > 0)
    return pass.kernels().issue(
        pass.stream(), kernel::AttentionMergeForward{.shape = shape,
                                                     .block = attention_block(shape, owner(context, step)),
                                                     .qkv = saved[Saved::qkv],
                                                     .kv = saved[OfSteps::kv][step],
                                                     .out = saved[Saved::attention_output],
                                                     .log_sum_exp = saved[Saved::log_sum_exp]});
  Tensor& out = core_output(context, saved);
  out = context.make(context.compute, kind, shape.tokens(), shape.q_columns());
  saved[Saved::log_sum_exp] = context.device.allocate(
      context.compute, kind, statistics_type(context.training.type), shape.tokens(), shape.q_heads);
  pass.kernels().issue(
      pass.stream(),
      kernel::AttentionForward{
          .shape = shape, .qkv = saved[Saved::qkv], .out = out, .log_sum_exp = saved[Saved::log_sum_exp]});
}

// Once the last step of the core is done, no exchange uses keys and values any more.
void release_kv(const UnitContext& context, Stream& stream, SavedUnit& saved) {
  for (Tensor& kv : saved[OfSteps::kv])
    if (kv) context.device.release(stream, kv);
  saved[OfSteps::kv].clear();
}

// A step of the core in I: the gradient of q is added up here, those of k and v in the ring.
void core_step_backward(ComputePass& pass, const UnitContext& context, int step, SavedUnit& saved) {
  const AttentionShape shape = core_shape(context);
  if (step == 0) {
    saved[OfSteps::kv_gradients].assign(context.cp(), {});
    saved[OfSteps::kv_sums].assign(context.cp() + 1, {});
  }
  if (shape.cp == 1) {
    saved[Saved::inner_gradient] = in_rows(saved[Saved::inner_gradient], shape.tokens());
    return pass.kernels().issue(pass.stream(),
                                kernel::AttentionBackward{.shape = shape,
                                                          .qkv = saved[Saved::qkv],
                                                          .out = core_output(context, saved),
                                                          .log_sum_exp = saved[Saved::log_sum_exp],
                                                          .out_gradient = saved[Between::core_gradient],
                                                          .qkv_gradient = saved[Saved::inner_gradient]});
  }
  Tensor& kv_gradient = saved[OfSteps::kv_gradients][step] =
      pass.make(MemoryKind::working, 2 * shape.kv_columns());
  if (step > 0)
    return pass.kernels().issue(
        pass.stream(), kernel::AttentionMergeBackward{.shape = shape,
                                                      .block = attention_block(shape, owner(context, step)),
                                                      .qkv = saved[Saved::qkv],
                                                      .kv = saved[OfSteps::kv][step],
                                                      .out = saved[Saved::attention_output],
                                                      .log_sum_exp = saved[Saved::log_sum_exp],
                                                      .out_gradient = saved[Between::core_gradient],
                                                      .qkv_gradient = saved[Saved::inner_gradient],
                                                      .kv_gradient = kv_gradient});
  pass.kernels().issue(pass.stream(),
                       kernel::AttentionBackward{.shape = shape,
                                                 .qkv = saved[Saved::qkv],
                                                 .out = saved[Saved::attention_output],
                                                 .log_sum_exp = saved[Saved::log_sum_exp],
                                                 .out_gradient = saved[Between::core_gradient],
                                                 .qkv_gradient = saved[Saved::inner_gradient]});
  pass.kernels().issue(pass.stream(), kernel::CopyColumns{.from = saved[Saved::inner_gradient],
                                                          .from_column = shape.q_columns(),
                                                          .to = kv_gradient,
                                                          .to_column = 0,
                                                          .count = 2 * shape.kv_columns()});
}

// F and I of a unit but for its norm, component by component. Each linear layer but the last makes the first
// of the tensors that its component keeps.
class UnitRun {
 public:
  UnitRun(const UnitContext& context, const Op& op, const std::vector<ParameterState>& parameters,
          SavedUnit& saved)
      : context_(context), op_(op), parameters_(parameters), saved_(saved), pass_(context, op.unit) {}

  // What a first forward makes and a backward makes again is there for one pass alone.
  Tensor forward(const Tensor& normed, MemoryKind kind) {
    Tensor output;
    for (const Component& component : components(op_.unit)) {
      if (!is_here(component, UnitPass::F)) continue;
      const bool made_again = component.recomputed(context_.recompute) && !op_.recomputed();
      forward(component, &normed, Step(context_, op_), made_again ? MemoryKind::working : kind, output);
    }
    return output;
  }

  Tensor input_gradient() {
    Tensor gradient;
    const auto all = components(op_.unit);
    for (size_t i = all.size(); i-- > 0;)
      if (is_here(all[i], UnitPass::I)) backward(all[i], gradient);
    return gradient;
  }

 private:
  [[nodiscard]] bool is_here(const Component& component, UnitPass pass) const {
    return op_.part == UnitPart::whole || component.part_of(pass, context_.division) == op_.part;
  }
  [[nodiscard]] const ParameterState& weight(const Component& linear) const {
    return parameters_[linear.weights->parameter];
  }
  [[nodiscard]] const ParameterState& bias(const Component& linear) const {
    return parameters_[linear.weights->bias_parameter];
  }
  [[nodiscard]] const Component& first_linear() const {
    return *find_component(op_.unit, ComponentKind::linear);
  }

  // What the component makes, as tensors of `kind`; the second linear layer makes the unit's output. Where
  // `normed` has the rows of a step alone, the others come with other steps; null: all rows are there.
  void forward(const Component& component, const Tensor* normed, const Step& step, MemoryKind kind,
               Tensor& output) {
    switch (component.kind) {
      case ComponentKind::linear:
        if (component.weights->pass == UnitPass::W_early)
          output = second_linear_forward(component);
        else
          first_linear_forward(component, normed ? *normed : pass_.normed(saved_), step, kind);
        break;
      case ComponentKind::rotary:
        if (step.last)
          pass_.kernels().issue(pass_.stream(),
                                kernel::BiasRopeForward{.shape = attention_shape(context_),
                                                        .theta = context_.training.model.rope_theta,
                                                        .bias = bias(first_linear()).weight,
                                                        .qkv = saved_[Saved::qkv]});
        break;
      case ComponentKind::core:
        attention_core(context_, step.index, saved_, kind);
        break;
      case ComponentKind::join:
        release_kv(context_, context_.compute, saved_);
        break;
      case ComponentKind::activation:
        activation_forward(kind);
        break;
      default:
        break;  // the norm is its caller's; others are in the kernels of their neighbours
    }
  }

  void first_linear_forward(const Component& linear, const Tensor& normed, const Step& step,
                            MemoryKind kind) {
    Tensor& out = saved_[linear.keeps.front().which];
    if (step.first) out = pass_.make(kind, weight(linear).weight.rows);
    const Tensor in = linear_rows(op_.unit, normed);
    pass_.linear(in, weight(linear), rows_for(context_, in, out, step));
    // That of q, k and v is in rotary's kernel.
    if (linear.weights->bias == TrainedWeights::Bias::encoder && of_encoder(context_))
      pass_.add_bias(1, bias(linear), out);
  }
  Tensor second_linear_forward(const Component& linear) {
    Tensor out = pass_.output(saved_[*linear.weights->input], weight(linear), saved_[Saved::norm_input], op_);
    if (of_encoder(context_)) pass_.add_bias(1.0 / context_.tp(), bias(linear), out);
    return out;
  }
  void activation_forward(MemoryKind kind) {
    const bool gated = context_.training.model.gated();
    const Tensor& in = saved_[Saved::fc1_output];
    Tensor& out = saved_[Saved::activation] = pass_.make(kind, in.columns / (gated ? 2 : 1));
    if (gated)
      pass_.kernels().issue(pass_.stream(), kernel::SwigluForward{.gate_up = in, .out = out});
    else
      pass_.kernels().issue(pass_.stream(), kernel::GeluForward{.x = in, .out = out});
  }

  // The first linear layer makes the gradient of the norm's output.
  void backward(const Component& component, Tensor& gradient) {
    switch (component.kind) {
      case ComponentKind::linear:
        if (component.weights->pass == UnitPass::W_early)
          second_linear_backward(component);
        else
          gradient = first_linear_backward(component);
        break;
      case ComponentKind::rotary:
        rotary_backward();
        break;
      case ComponentKind::core:
        core_step_backward(pass_, context_, op_.step, saved_);
        break;
      case ComponentKind::activation:
        activation_backward();
        break;
      default:
        break;  // as in F; the residual's is in the norm's kernel
    }
  }

  // The gradient of its input, or the rows of it that a step makes. Recomputation stands behind it, so that
  // the gathering of the norm's output hides; in parts, the core's are ops of their own.
  void second_linear_backward(const Component& linear) {
    const Step step(context_, op_);
    Tensor& gradient = saved_[Between::core_gradient];
    if (step.first) {
      saved_[Saved::inner_gradient] = pass_.make(MemoryKind::saved, weight(first_linear()).weight.rows);
      gradient = pass_.make(MemoryKind::working, weight(linear).weight.columns);
    }
    const Tensor rows =
        context_.division.overlaps() ? ring_rows(context_, op_, saved_) : saved_[Saved::output_gradient];
    pass_.linear_input_gradient(rows, weight(linear), rows_for(context_, rows, gradient, step));
    if (!step.last) return;
    Tensor none;  // the second linear layer is not run again
    for (const Component& again : components(op_.unit)) {
      const bool own_op = again.kind == ComponentKind::norm ||
                          (again.kind == ComponentKind::core && op_.part != UnitPart::whole);
      if (again.recomputed(context_.recompute) && again.part != UnitPart::after && !own_op)
        forward(again, nullptr, {}, MemoryKind::saved, none);
    }
  }
  void activation_backward() {
    const Tensor &in = saved_[Saved::fc1_output], &gradient = saved_[Between::core_gradient];
    if (context_.training.model.gated())
      pass_.kernels().issue(
          pass_.stream(),
          kernel::SwigluBackward{
              .gate_up = in, .out_gradient = gradient, .gate_up_gradient = saved_[Saved::inner_gradient]});
    else
      pass_.kernels().issue(
          pass_.stream(),
          kernel::GeluBackward{
              .x = in, .out_gradient = gradient, .x_gradient = saved_[Saved::inner_gradient]});
    pass_.release(saved_[Between::core_gradient]);
    pass_.release(saved_[Saved::fc1_output]);
  }
  // Behind the core's last step and exchange.
  void rotary_backward() {
    const AttentionShape shape = attention_shape(context_);
    release_kv(context_, context_.compute, saved_);
    if (Tensor& own = saved_[OfSteps::kv_sums].back()) {
      pass_.kernels().issue(pass_.stream(), kernel::CopyColumns{.from = own,
                                                                .from_column = 0,
                                                                .to = saved_[Saved::inner_gradient],
                                                                .to_column = shape.q_columns(),
                                                                .count = 2 * shape.kv_columns()});
      pass_.release(own);
    }
    pass_.release(saved_[Between::core_gradient]);
    for (const Saved done : {Saved::core_output, Saved::qkv, Saved::log_sum_exp}) pass_.release(saved_[done]);
    pass_.kernels().issue(pass_.stream(),
                          kernel::RopeBackward{.shape = shape,
                                               .theta = context_.training.model.rope_theta,
                                               .qkv_gradient = saved_[Saved::inner_gradient]});
  }
  Tensor first_linear_backward(const Component& linear) {
    Tensor gradient = context_.make(context_.compute, MemoryKind::working, context_.tokens(),
                                    context_.training.model.hidden);
    pass_.linear_input_gradient(saved_[Saved::inner_gradient], weight(linear),
                                linear_rows(op_.unit, gradient));
    return gradient;
  }

  const UnitContext& context_;
  const Op& op_;
  const std::vector<ParameterState>& parameters_;
  SavedUnit& saved_;
  ComputePass pass_;
};

}  // namespace

std::vector<Tensor> SavedUnit::all() const {
  std::vector<Tensor> all(saved_.begin(), saved_.end());
  all.insert(all.end(), between_.begin(), between_.end());
  for (const std::vector<Tensor>& steps : of_steps_) all.insert(all.end(), steps.begin(), steps.end());
  return all;
}

void norm_forward(const UnitContext& context, Stream& stream, const std::vector<ParameterState>& parameters,
                  Tensor input, SavedUnit& saved, MemoryKind of_input, MemoryKind of_output) {
  saved[Saved::norm_input] = std::move(input);
  context.device.retag(saved[Saved::norm_input], of_input);
  saved[Saved::norm_statistics] =
      context.device.allocate(stream, of_output, statistics_type(context.training.type),
                              saved[Saved::norm_input].rows, of_encoder(context) ? 2 : 1);
  saved[Saved::norm_output] =
      context.make(stream, of_output, saved[Saved::norm_input].rows, saved[Saved::norm_input].columns);
  Kernels& kernels = context.device.kernels();
  const Tensor& gain = norm_of(parameters).weight;
  const double epsilon = context.training.model.norm_epsilon;
  if (of_encoder(context))
    kernels.issue(stream, kernel::LayerNormForward{.x = saved[Saved::norm_input],
                                                   .gain = gain,
                                                   .bias = norm_bias_of(parameters).weight,
                                                   .epsilon = epsilon,
                                                   .y = saved[Saved::norm_output],
                                                   .statistics = saved[Saved::norm_statistics]});
  else
    kernels.issue(stream, kernel::RmsNormForward{.x = saved[Saved::norm_input],
                                                 .gain = gain,
                                                 .epsilon = epsilon,
                                                 .y = saved[Saved::norm_output],
                                                 .rstd = saved[Saved::norm_statistics]});
}

void norm_backward(const UnitContext& context, Stream& stream, const std::vector<ParameterState>& parameters,
                   SavedUnit& saved, double factor, const Tensor& residual, const Tensor& gradient) {
  const ParameterState& gain = norm_of(parameters);
  Kernels& kernels = context.device.kernels();
  if (of_encoder(context))
    kernels.issue(stream, kernel::LayerNormBackward{.dy = gradient,
                                                    .x = saved[Saved::norm_input],
                                                    .gain = gain.weight,
                                                    .statistics = saved[Saved::norm_statistics],
                                                    .residual_factor = factor,
                                                    .residual = residual,
                                                    .dx = gradient,
                                                    .gain_gradient = gain.gradient,
                                                    .bias_gradient = norm_bias_of(parameters).gradient});
  else
    kernels.issue(stream, kernel::RmsNormBackward{.dy = gradient,
                                                  .x = saved[Saved::norm_input],
                                                  .gain = gain.weight,
                                                  .rstd = saved[Saved::norm_statistics],
                                                  .residual_factor = factor,
                                                  .residual = residual,
                                                  .dx = gradient,
                                                  .gain_gradient = gain.gradient});
  context.device.release(stream, saved[Saved::norm_input]);
  context.device.release(stream, saved[Saved::norm_statistics]);
}

Tensor ring_rows(const UnitContext& context, const Op& op, const SavedUnit& saved) {
  const bool forward = op.unit_pass == UnitPass::F;
  if (op.step == 0) return forward ? saved[Saved::norm_output] : saved[Between::residual];
  return rows_of_step(context, forward ? saved[Between::ring] : saved[Saved::output_gradient], op.step);
}

Tensor unit_forward(const UnitContext& context, const Op& op, const std::vector<ParameterState>& parameters,
                    const Tensor& normed, SavedUnit& saved, bool keep) {
  const MemoryKind kind = keep ? MemoryKind::saved : MemoryKind::working;
  return UnitRun(context, op, parameters, saved).forward(normed, kind);
}

void drop_recomputed(const UnitContext& context, Unit unit, SavedUnit& saved) {
  ComputePass pass(context);
  const Recompute& again = context.recompute;
  for (const Component& component : components(unit))
    if (component.recomputed(again) || again.layer)
      for (const Kept& kept : component.keeps)
        if (kept.dropped) pass.release(saved[kept.which]);
  if (!again.layer) return;
  if (unit == Unit::attn)
    context.device.retag(saved[Saved::norm_input], MemoryKind::saved);
  else
    pass.release(saved[Saved::norm_input]);
}

Tensor unit_input_gradient(const UnitContext& context, const Op& op,
                           const std::vector<ParameterState>& parameters, Tensor output_gradient,
                           SavedUnit& saved) {
  if (output_gradient) {
    saved[Saved::output_gradient] = std::move(output_gradient);
    context.device.retag(saved[Saved::output_gradient], MemoryKind::saved);
  }
  return UnitRun(context, op, parameters, saved).input_gradient();
}

// All rows of the output's gradient stay for weight gradients, so that the own ones are copied there.
ExchangeTensors row_exchange_tensors(const UnitContext& context, Stream& stream, const Op& op,
                                     SavedUnit& saved) {
  const bool forward = op.unit_pass == UnitPass::F;
  Tensor& all = forward ? saved[Between::ring] : saved[Saved::output_gradient];
  const Tensor& own = forward ? saved[Saved::norm_output] : saved[Between::residual];
  if (op.step == 1)
    all = context.make(stream, forward ? MemoryKind::working : MemoryKind::saved, context.tokens(),
                       own.columns);
  if (op.step == 1 && !forward)
    context.device.kernels().issue(stream, kernel::Copy{.from = own, .to = rows_of_step(context, all, 0)});
  return {op.step == 1 ? own : rows_of_step(context, all, op.step - 1), rows_of_step(context, all, op.step)};
}

namespace {

// What an all-to-all works on: this rank's rows of all heads, and all rows of this rank's share of them. One
// of the two becomes the other; if they are one tensor, in its memory.
struct HeadExchange {
  Tensor &own_rows, &own_heads;
  std::vector<int64_t>
      widths;    // in own_rows, of the columns that are divided among the ranks, each for itself
  bool gathers;  // whether it makes own_heads, not own_rows
};

HeadExchange head_exchange(const UnitContext& context, const Op& op, SavedUnit& saved) {
  const AttentionShape shape = attention_shape(context);
  const std::vector<int64_t> q{shape.q_columns()}, qkv{q[0], shape.kv_columns(), shape.kv_columns()};
  const bool gathers = op.step == 1;
  if (op.unit_pass == UnitPass::F)
    return gathers ? HeadExchange{saved[Saved::qkv], saved[Saved::qkv], qkv, true}
                   : HeadExchange{saved[Saved::attention_output], saved[Saved::core_output], q, false};
  return gathers ? HeadExchange{saved[Between::core_gradient], saved[Between::core_gradient], q, true}
                 : HeadExchange{saved[Saved::inner_gradient], saved[Saved::inner_gradient], qkv, false};
}

// Copies `rank`'s share of the heads of the own rows to its block, or back.
void copy_heads(const UnitContext& context, Stream& stream, const std::vector<int64_t>& widths,
                const Tensor& own_rows, const Tensor& block, int rank, bool to_block) {
  Kernels& kernels = context.device.kernels();
  int64_t in_rows = 0, in_block = 0;
  for (const int64_t width : widths) {
    const int64_t share = width / context.cp(), from = in_rows + rank * share;
    if (to_block)
      kernels.issue(
          stream,
          kernel::CopyColumns{
              .from = own_rows, .from_column = from, .to = block, .to_column = in_block, .count = share});
    else
      kernels.issue(
          stream,
          kernel::CopyColumns{
              .from = block, .from_column = in_block, .to = own_rows, .to_column = from, .count = share});
    in_rows += width;
    in_block += share;
  }
}

// Copies `rank`'s two pieces of each whole sequence to its block, or back.
void copy_pieces(const UnitContext& context, Stream& stream, const Tensor& own_heads, const Tensor& block,
                 int rank, bool to_block) {
  const int64_t own_seq = context.training.own_seq(), rows = own_seq / 2, columns = block.columns;
  for (int64_t sample = 0; sample < context.training.microbatch_size; ++sample)
    for (const int64_t row : {int64_t{0}, rows}) {
      const int64_t position = position_of(context.cp(), rank, own_seq, row);
      const Tensor whole =
                       own_heads.part((sample * context.training.seq + position) * columns, rows, columns),
                   piece = block.part((sample * own_seq + row) * columns, rows, columns);
      context.device.kernels().issue(
          stream, kernel::Copy{.from = to_block ? whole : piece, .to = to_block ? piece : whole});
    }
}

// Of a tensor of an all-to-all, the block for `rank` of the group, or from it.
Tensor block_of(const UnitContext& context, const Tensor& all, int rank) {
  return all.part(rank * context.tokens() * all.columns, context.tokens(), all.columns);
}

ExchangeTensors heads_to_send(const UnitContext& context, Stream& stream, const Op& op, SavedUnit& saved) {
  const HeadExchange exchange = head_exchange(context, op, saved);
  const Tensor& from = exchange.gathers ? exchange.own_rows : exchange.own_heads;
  const int64_t rows = context.tokens() * context.cp(), columns = from.elements() / rows;
  const Tensor sent = context.make(stream, MemoryKind::working, rows, columns);
  for (int rank = 0; rank < context.cp(); ++rank) {
    const Tensor block = block_of(context, sent, rank);
    if (exchange.gathers)
      copy_heads(context, stream, exchange.widths, from, block, rank, true);
    else
      copy_pieces(context, stream, from, block, rank, true);
  }
  return {sent, context.make(stream, MemoryKind::communication, rows, columns)};
}

// The own block stays where it is.
void place_heads(const UnitContext& context, Stream& stream, const Op& op, const ExchangeTensors& tensors,
                 SavedUnit& saved) {
  const HeadExchange exchange = head_exchange(context, op, saved);
  Tensor& from = exchange.gathers ? exchange.own_rows : exchange.own_heads;
  Tensor& to = exchange.gathers ? exchange.own_heads : exchange.own_rows;
  const int64_t rows = exchange.gathers ? tensors.sent.rows : context.tokens();
  to = in_rows(&from == &to ? from : context.make(stream, from.memory->kind, from.rows, from.columns), rows);
  for (int rank = 0; rank < context.cp(); ++rank) {
    const Tensor block = block_of(context, tensors.received, rank);
    if (exchange.gathers)
      copy_pieces(context, stream, to, block, rank, false);
    else
      copy_heads(context, stream, exchange.widths, to, block, rank, false);
  }
}

}  // namespace

ExchangeTensors exchange_tensors(const UnitContext& context, Stream& stream, const Op& op, SavedUnit& saved) {
  if (op.kind == OpKind::row_exchange) return row_exchange_tensors(context, stream, op, saved);
  if (op.kind == OpKind::all_to_all) return heads_to_send(context, stream, op, saved);
  const AttentionShape shape = attention_shape(context);
  const int64_t columns = 2 * shape.kv_columns();
  if (op.kind == OpKind::kv_exchange && op.step == 1) {
    release_kv(context, stream, saved);  // of a core that was recomputed
    saved[OfSteps::kv].assign(context.cp(), {});
    saved[OfSteps::kv][0] = context.make(stream, MemoryKind::working, context.tokens(), columns);
    context.device.kernels().issue(stream, kernel::CopyColumns{.from = saved[Saved::qkv],
                                                               .from_column = shape.q_columns(),
                                                               .to = saved[OfSteps::kv][0],
                                                               .to_column = 0,
                                                               .count = columns});
  } else if (op.kind == OpKind::kv_exchange) {
    // The step before last is done, and what it worked on was sent on.
    context.device.release(stream, saved[OfSteps::kv][op.step - 2]);
  }
  const Tensor received = context.make(stream, MemoryKind::communication, context.tokens(), columns);
  if (op.kind == OpKind::kv_exchange) {
    saved[OfSteps::kv][op.step] = received;
    return {saved[OfSteps::kv][op.step - 1], received};
  }
  Tensor &gradient = saved[OfSteps::kv_gradients][op.step - 1], &sum = saved[OfSteps::kv_sums][op.step - 1];
  if (sum) {
    context.device.kernels().issue(stream, kernel::AddRows{.in = sum, .first = 0, .out = gradient});
    context.device.release(stream, sum);
  }
  saved[OfSteps::kv_sums][op.step] = received;
  return {gradient, received};
}

void finish_exchange(const UnitContext& context, Stream& stream, const Op& op, ExchangeTensors tensors,
                     SavedUnit& saved) {
  if (op.kind == OpKind::all_to_all) {
    place_heads(context, stream, op, tensors, saved);
    context.device.release(stream, tensors.sent);
    context.device.release(stream, tensors.received);
  }
  // The step that works on the keys and values just sent may still read them.
  if (op.kind == OpKind::kv_gradient_exchange)
    context.device.release(stream, saved[OfSteps::kv_gradients][op.step - 1]);
}

void unit_weight_gradient(const UnitContext& context, Unit unit, UnitPass part,
                          const std::vector<ParameterState>& parameters, SavedUnit& saved) {
  ComputePass pass(context, unit);
  for (const Component& component : components(unit)) {
    if (!component.weights || component.weights->pass != part) continue;
    const TrainedWeights& weights = *component.weights;
    const bool of_norm = weights.input == Saved::norm_output;
    Tensor &in = saved[*weights.input], &out_gradient = saved[*weights.gradient];
    pass.linear_weight_gradient(out_gradient, of_norm ? linear_rows(unit, pass.normed(saved)) : in,
                                parameters[weights.parameter]);
    // Of a bias that is not divided all ranks have the whole gradient: one of them gives it to the sum.
    if (weights.has_bias(context.training.model) && (part == UnitPass::W_late || context.tp_index == 0))
      pass.kernels().issue(
          pass.stream(), kernel::AddColumnSums{.gradient = out_gradient,
                                               .bias_gradient = parameters[weights.bias_parameter].gradient});
    if (!of_norm) pass.release(in);
    pass.release(out_gradient);
    if (!of_norm) continue;
    pass.release(in);
    pass.release(saved[Between::gathered]);
  }
}

Tensor embedding_forward(const UnitContext& context, const ParameterState& table, const Tensor& tokens) {
  Tensor out = context.make(context.compute, MemoryKind::working, context.tokens(), table.weight.columns);
  context.device.kernels().issue(context.compute,
                                 kernel::EmbeddingForward{.tokens = tokens,
                                                          .table = table.weight,
                                                          .first = context.tp_index * table.weight.rows,
                                                          .out = out});
  return out;
}

void embedding_weight_gradient(const UnitContext& context, const ParameterState& table, const Tensor& tokens,
                               Tensor output_gradient) {
  context.device.kernels().issue(context.compute,
                                 kernel::EmbeddingBackward{.tokens = tokens,
                                                           .out_gradient = output_gradient,
                                                           .first = context.tp_index * table.weight.rows,
                                                           .table_gradient = table.gradient});
  context.device.release(context.compute, output_gradient);
}

namespace {

// Calls copy(rows of images of all samples, the same rows of `all`) for each sample; images stand first in
// it.
template <typename Copy>
void for_each_image(const UnitContext& context, const Tensor& images, const Tensor& all, Copy copy) {
  const int64_t rows = context.training.image_tokens(), columns = all.columns;
  for (int64_t sample = 0; sample < context.training.microbatch_size; ++sample)
    copy(images.part(sample * rows * columns, rows, columns),
         all.part(sample * context.training.seq * columns, rows, columns));
}

}  // namespace

void add_images(const UnitContext& context, Tensor images, const Tensor& out) {
  for_each_image(context, images, out, [&](const Tensor& image, const Tensor& to) {
    context.device.kernels().issue(context.compute,
                                   kernel::Scale{.factor = 1.0 / context.tp(), .in = image, .out = to});
  });
  context.device.release(context.compute, images);
}

Tensor image_rows(const UnitContext& context, const Tensor& gradient) {
  const int64_t rows = int64_t{context.training.microbatch_size} * context.training.image_tokens();
  Tensor images = context.make(context.compute, MemoryKind::working, rows, gradient.columns);
  for_each_image(context, images, gradient, [&](const Tensor& image, const Tensor& from) {
    context.device.kernels().issue(context.compute, kernel::Copy{.from = from, .to = image});
  });
  return images;
}

Tensor patches_forward(const UnitContext& context, const ParameterState& weight, const Tensor& patches) {
  ComputePass pass(context);
  Tensor out = pass.make(MemoryKind::working, weight.weight.rows);
  pass.linear(patches, weight, out);
  return out;
}

void patches_weight_gradient(const UnitContext& context, const ParameterState& weight, Tensor patches,
                             Tensor output_gradient) {
  // All ranks have the whole gradient, of which each gives one t-th to the group's sum.
  context.device.kernels().issue(context.compute, kernel::Gemm{.transpose_a = true,
                                                               .alpha = 1.0 / context.tp(),
                                                               .a = output_gradient,
                                                               .b = patches,
                                                               .beta = 1,
                                                               .c = weight.gradient});
  context.device.release(context.compute, patches);
  context.device.release(context.compute, output_gradient);
}

}  // namespace stp
