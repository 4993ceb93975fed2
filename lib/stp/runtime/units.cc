#include "stp/runtime/units.h"

#include <stdexcept>

namespace stp {
namespace {

// The parameters of a unit by their names in lib/stp/model/parameters.h.
const ParameterState& of(const std::vector<ParameterState>& parameters, AttnParameter which) {
  return parameters[static_cast<size_t>(which)];
}
const ParameterState& of(const std::vector<ParameterState>& parameters, MlpParameter which) {
  return parameters[static_cast<size_t>(which)];
}
const ParameterState& of(const std::vector<ParameterState>& parameters, HeadParameter which) {
  return parameters[static_cast<size_t>(which)];
}

class UnitPassRunner {
 public:
  explicit UnitPassRunner(const UnitContext& context)
      : context_(context), kernels_(context.device.kernels()), stream_(context.compute) {}

  [[nodiscard]] AttentionShape attention_shape() const {
    const ModelConfig& model = context_.training.model;
    const int tp = context_.tp();
    return {context_.training.microbatch_size, context_.training.seq, model.q_heads / tp, model.kv_heads / tp,
            model.head_dim};
  }
  [[nodiscard]] int64_t tokens() const { return context_.training.tokens(); }
  [[nodiscard]] double share() const { return 1.0 / context_.tp(); }

  Tensor make(MemoryKind kind, int64_t columns) {
    return context_.device.allocate(stream_, kind, context_.training.type, tokens(), columns);
  }
  Tensor make_statistics(MemoryKind kind, int64_t columns) {
    return context_.device.allocate(stream_, kind, statistics_type(context_.training.type), tokens(),
                                    columns);
  }
  void release(Tensor& tensor) { context_.device.release(stream_, tensor); }
  Tensor keep(Tensor tensor) {
    context_.device.retag(stream_, tensor, MemoryKind::saved);
    return tensor;
  }

  void norm_forward(const ParameterState& gain, Tensor input, SavedUnit& saved) {
    saved.input = keep(std::move(input));
    saved.statistics = make_statistics(MemoryKind::saved, 1);
    saved.normed = make(MemoryKind::saved, saved.input.columns);
    kernels_.rms_norm_forward(stream_, saved.input, gain.weight, context_.training.model.norm_epsilon,
                              saved.normed, saved.statistics);
  }
  // `gradient` of the norm's output becomes that of its input.
  void norm_backward(const ParameterState& gain, SavedUnit& saved, const Tensor& residual,
                     const Tensor& gradient) {
    kernels_.rms_norm_backward(stream_, gradient, saved.input, gain.weight, saved.statistics, share(),
                               residual, gradient, gain.gradient);
    release(saved.input);
    release(saved.statistics);
  }

  // out = in · weightᵀ (+ out)
  void linear(const Tensor& in, const ParameterState& weight, const Tensor& out, bool add = false) {
    kernels_.gemm(stream_, false, true, 1, in, weight.weight, add ? 1 : 0, out);
  }
  void linear_input_gradient(const Tensor& out_gradient, const ParameterState& weight,
                             const Tensor& gradient) {
    kernels_.gemm(stream_, false, false, 1, out_gradient, weight.weight, 0, gradient);
  }
  void linear_weight_gradient(const Tensor& out_gradient, const Tensor& in, const ParameterState& weight) {
    kernels_.gemm(stream_, true, false, 1, out_gradient, in, 1, weight.gradient);
  }

  // One t-th of the residual, to which the unit's last linear adds.
  Tensor residual_share(const SavedUnit& saved) {
    Tensor out = make(MemoryKind::working, saved.input.columns);
    kernels_.scale(stream_, share(), saved.input, out);
    return out;
  }

  Kernels& kernels() { return kernels_; }
  Stream& stream() { return stream_; }

 private:
  const UnitContext& context_;
  Kernels& kernels_;
  Stream& stream_;
};

Tensor attn_forward(const UnitContext& context, const std::vector<ParameterState>& parameters, Tensor input,
                    SavedUnit& saved) {
  UnitPassRunner run(context);
  const AttentionShape shape = run.attention_shape();
  run.norm_forward(of(parameters, AttnParameter::norm), std::move(input), saved);
  saved.qkv = run.make(MemoryKind::saved, shape.qkv_columns());
  saved.attention = run.make(MemoryKind::saved, shape.q_columns());
  saved.log_sum_exp = run.make_statistics(MemoryKind::saved, shape.q_heads);
  run.linear(saved.normed, of(parameters, AttnParameter::qkv), saved.qkv);
  run.kernels().bias_rope_forward(run.stream(), shape, context.training.model.rope_theta,
                                  of(parameters, AttnParameter::qkv_bias).weight, saved.qkv);
  run.kernels().attention_forward(run.stream(), shape, saved.qkv, saved.attention, saved.log_sum_exp);
  Tensor out = run.residual_share(saved);
  run.linear(saved.attention, of(parameters, AttnParameter::projection), out, true);
  return out;
}

Tensor mlp_forward(const UnitContext& context, const std::vector<ParameterState>& parameters, Tensor input,
                   SavedUnit& saved) {
  UnitPassRunner run(context);
  run.norm_forward(of(parameters, MlpParameter::norm), std::move(input), saved);
  const ParameterState& gate_up = of(parameters, MlpParameter::gate_up);
  saved.gate_up = run.make(MemoryKind::saved, gate_up.weight.rows);
  saved.activation = run.make(MemoryKind::saved, gate_up.weight.rows / 2);
  run.linear(saved.normed, gate_up, saved.gate_up);
  run.kernels().swiglu_forward(run.stream(), saved.gate_up, saved.activation);
  Tensor out = run.residual_share(saved);
  run.linear(saved.activation, of(parameters, MlpParameter::down), out, true);
  return out;
}

Tensor attn_input_gradient(const UnitContext& context, const std::vector<ParameterState>& parameters,
                           Tensor output_gradient, SavedUnit& saved) {
  UnitPassRunner run(context);
  const AttentionShape shape = run.attention_shape();
  saved.output_gradient = run.keep(std::move(output_gradient));
  saved.inner_gradient = run.make(MemoryKind::saved, shape.qkv_columns());
  Tensor attention_gradient = run.make(MemoryKind::working, shape.q_columns());
  run.linear_input_gradient(saved.output_gradient, of(parameters, AttnParameter::projection),
                            attention_gradient);
  run.kernels().attention_backward(run.stream(), shape, saved.qkv, saved.attention, saved.log_sum_exp,
                                   attention_gradient, saved.inner_gradient);
  run.release(attention_gradient);
  run.release(saved.qkv);
  run.release(saved.log_sum_exp);
  run.kernels().rope_backward(run.stream(), shape, context.training.model.rope_theta, saved.inner_gradient);
  Tensor gradient = run.make(MemoryKind::working, saved.input.columns);
  run.linear_input_gradient(saved.inner_gradient, of(parameters, AttnParameter::qkv), gradient);
  run.norm_backward(of(parameters, AttnParameter::norm), saved, saved.output_gradient, gradient);
  return gradient;
}

Tensor mlp_input_gradient(const UnitContext& context, const std::vector<ParameterState>& parameters,
                          Tensor output_gradient, SavedUnit& saved) {
  UnitPassRunner run(context);
  saved.output_gradient = run.keep(std::move(output_gradient));
  saved.inner_gradient = run.make(MemoryKind::saved, saved.gate_up.columns);
  Tensor activation_gradient = run.make(MemoryKind::working, saved.activation.columns);
  run.linear_input_gradient(saved.output_gradient, of(parameters, MlpParameter::down), activation_gradient);
  run.kernels().swiglu_backward(run.stream(), saved.gate_up, activation_gradient, saved.inner_gradient);
  run.release(activation_gradient);
  run.release(saved.gate_up);
  Tensor gradient = run.make(MemoryKind::working, saved.input.columns);
  run.linear_input_gradient(saved.inner_gradient, of(parameters, MlpParameter::gate_up), gradient);
  run.norm_backward(of(parameters, MlpParameter::norm), saved, saved.output_gradient, gradient);
  return gradient;
}

}  // namespace

Tensor unit_forward(const UnitContext& context, Unit unit, const std::vector<ParameterState>& parameters,
                    Tensor input, SavedUnit& saved) {
  return unit == Unit::attn ? attn_forward(context, parameters, std::move(input), saved)
                            : mlp_forward(context, parameters, std::move(input), saved);
}

Tensor unit_input_gradient(const UnitContext& context, Unit unit,
                           const std::vector<ParameterState>& parameters, Tensor output_gradient,
                           SavedUnit& saved) {
  return unit == Unit::attn ? attn_input_gradient(context, parameters, std::move(output_gradient), saved)
                            : mlp_input_gradient(context, parameters, std::move(output_gradient), saved);
}

void unit_weight_gradient(const UnitContext& context, Unit unit, UnitPass part,
                          const std::vector<ParameterState>& parameters, SavedUnit& saved) {
  UnitPassRunner run(context);
  const bool early = part == UnitPass::W_early;
  switch (unit) {
    case Unit::attn:
      if (early) {
        run.linear_weight_gradient(saved.output_gradient, saved.attention,
                                   of(parameters, AttnParameter::projection));
        run.release(saved.attention);
        run.release(saved.output_gradient);
      } else {
        run.linear_weight_gradient(saved.inner_gradient, saved.normed, of(parameters, AttnParameter::qkv));
        run.kernels().add_column_sums(run.stream(), saved.inner_gradient,
                                      of(parameters, AttnParameter::qkv_bias).gradient);
        run.release(saved.inner_gradient);
        run.release(saved.normed);
      }
      break;
    case Unit::mlp:
      if (early) {
        run.linear_weight_gradient(saved.output_gradient, saved.activation,
                                   of(parameters, MlpParameter::down));
        run.release(saved.activation);
        run.release(saved.output_gradient);
      } else {
        run.linear_weight_gradient(saved.inner_gradient, saved.normed, of(parameters, MlpParameter::gate_up));
        run.release(saved.inner_gradient);
        run.release(saved.normed);
      }
      break;
    case Unit::head:
      if (early) break;
      run.linear_weight_gradient(saved.logits_gradient, saved.normed,
                                 of(parameters, HeadParameter::projection));
      run.release(saved.logits_gradient);
      run.release(saved.normed);
      break;
    case Unit::embedding:
      throw std::logic_error("the embedding's gradient is no op of its own");
  }
}

void head_forward(const UnitContext& context, const std::vector<ParameterState>& parameters, Tensor input,
                  const Tensor& targets, double factor, const Tensor& loss, SavedUnit& saved) {
  UnitPassRunner run(context);
  Kernels& kernels = run.kernels();
  run.norm_forward(of(parameters, HeadParameter::norm), std::move(input), saved);
  const ParameterState& projection = of(parameters, HeadParameter::projection);
  const int64_t entries = projection.weight.rows, first = context.tp_index() * entries;
  saved.logits_gradient = run.make(MemoryKind::saved, entries);
  run.linear(saved.normed, projection, saved.logits_gradient);
  Tensor maximum = run.make_statistics(MemoryKind::working, 1);
  Tensor sums = run.make_statistics(MemoryKind::working, 2);
  kernels.row_maximum(run.stream(), saved.logits_gradient, maximum);
  context.inline_group.all_reduce(run.stream(), Reduce::maximum, maximum);
  kernels.exponential_sums(run.stream(), saved.logits_gradient, maximum, targets, first, sums);
  context.inline_group.all_reduce(run.stream(), Reduce::sum, sums);
  kernels.cross_entropy(run.stream(), maximum, sums, targets, first, factor, saved.logits_gradient, loss);
  kernels.check_finite(run.stream(), loss, "the loss");
  run.release(maximum);
  run.release(sums);
}

Tensor head_input_gradient(const UnitContext& context, const std::vector<ParameterState>& parameters,
                           SavedUnit& saved) {
  UnitPassRunner run(context);
  Tensor gradient = run.make(MemoryKind::working, saved.input.columns);
  run.linear_input_gradient(saved.logits_gradient, of(parameters, HeadParameter::projection), gradient);
  run.norm_backward(of(parameters, HeadParameter::norm), saved, {}, gradient);
  context.inline_group.all_reduce(run.stream(), Reduce::sum, gradient);
  return gradient;
}

Tensor embedding_forward(const UnitContext& context, const ParameterState& table, const Tensor& tokens) {
  UnitPassRunner run(context);
  Tensor out = run.make(MemoryKind::working, table.weight.columns);
  run.kernels().embedding_forward(run.stream(), tokens, table.weight, context.tp_index() * table.weight.rows,
                                  out);
  context.inline_group.all_reduce(run.stream(), Reduce::sum, out);
  return out;
}

void embedding_gradient(const UnitContext& context, Stream& stream, const ParameterState& table,
                        const Tensor& tokens, Tensor output_gradient) {
  context.device.kernels().embedding_backward(stream, tokens, output_gradient,
                                              context.tp_index() * table.weight.rows, table.gradient);
  context.device.release(stream, output_gradient);
}

}  // namespace stp
