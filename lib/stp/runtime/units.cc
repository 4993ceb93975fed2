#include "stp/runtime/units.h"

#include <utility>

namespace stp {
namespace {

const ParameterState& norm_of(const std::vector<ParameterState>& parameters) {
  return with_role(parameters, Role::norm);
}
// The norm's bias, or its gradient; empty without one.
Tensor of_norm_bias(const UnitContext& context, const std::vector<ParameterState>& parameters,
                    Tensor ParameterState::*which) {
  return context.training.model.norm() == Norm::layer ? with_role(parameters, Role::norm_bias).*which
                                                      : Tensor{};
}

bool is_layer_norm(const UnitContext& context) { return context.training.model.norm() != Norm::rms; }

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

AttentionShape UnitContext::attention_shape() const {
  const ModelConfig& model = training.model;
  return {.batch = training.microbatch_size,
          .seq = own_seq(),
          .q_heads = model.q_heads / tp(),
          .kv_heads = model.kv_heads / tp(),
          .head_dim = model.head_dim,
          .cp = cp(),
          .cp_index = cp_index,
          .unrotated = model.head_dim - model.rotary_dim(),
          .causal = model.causal()};
}

Tensor UnitContext::rows_of_step(const Tensor& all, int step) const {
  const int owner = (tp_index - step + tp()) % tp();
  const int64_t rows = own_tokens();
  return all.part(owner * rows * all.columns, rows, all.columns);
}

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
                              saved[Saved::norm_input].rows, is_layer_norm(context) ? 2 : 1);
  saved[Saved::norm_output] =
      context.make(stream, of_output, saved[Saved::norm_input].rows, saved[Saved::norm_input].columns);
  context.issue(stream,
                kernel::NormForward{.centred = is_layer_norm(context),
                                    .x = saved[Saved::norm_input],
                                    .gain = norm_of(parameters).weight,
                                    .bias = of_norm_bias(context, parameters, &ParameterState::weight),
                                    .epsilon = context.training.model.norm_epsilon,
                                    .y = saved[Saved::norm_output],
                                    .statistics = saved[Saved::norm_statistics]});
}

void norm_backward(const UnitContext& context, Stream& stream, const std::vector<ParameterState>& parameters,
                   SavedUnit& saved, double factor, const Tensor& residual, const Tensor& gradient,
                   bool keeps) {
  const ParameterState& gain = norm_of(parameters);
  context.issue(stream, kernel::NormBackward{
                            .centred = is_layer_norm(context),
                            .dy = gradient,
                            .x = saved[Saved::norm_input],
                            .gain = gain.weight,
                            .statistics = saved[Saved::norm_statistics],
                            .residual_factor = factor,
                            .residual = residual,
                            .dx = gradient,
                            .gain_gradient = gain.gradient,
                            .bias_gradient = of_norm_bias(context, parameters, &ParameterState::gradient)});
  if (!keeps) release_norm(context, stream, saved);
}

void release_norm(const UnitContext& context, Stream& stream, SavedUnit& saved) {
  context.release(stream, saved[Saved::norm_input]);
  context.release(stream, saved[Saved::norm_statistics]);
}

Tensor ring_rows(const UnitContext& context, const Op& op, const SavedUnit& saved) {
  const bool forward = op.unit_pass == UnitPass::F;
  if (op.step == 0) return forward ? saved[Saved::norm_output] : saved[Between::residual];
  return context.rows_of_step(forward ? saved[Between::ring] : saved[Saved::output_gradient], op.step);
}

void release_kv(const UnitContext& context, Stream& stream, SavedUnit& saved) {
  for (Tensor& kv : saved[OfSteps::kv]) context.release(stream, kv);
  saved[OfSteps::kv].clear();
}

void add_images(const UnitContext& context, Tensor images, const Tensor& out) {
  for_each_image(context, images, out, [&](const Tensor& image, const Tensor& to) {
    context.issue(context.compute, kernel::Scale{.factor = 1.0 / context.tp(), .in = image, .out = to});
  });
  context.device.release(context.compute, images);
}

Tensor image_rows(const UnitContext& context, const Tensor& gradient) {
  const int64_t rows = int64_t{context.training.microbatch_size} * context.training.image_tokens();
  Tensor images = context.make(context.compute, MemoryKind::working, rows, gradient.columns);
  for_each_image(context, images, gradient, [&](const Tensor& image, const Tensor& from) {
    context.issue(context.compute, kernel::Copy{.from = from, .to = image});
  });
  return images;
}

}  // namespace stp
