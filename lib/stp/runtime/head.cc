#include "stp/runtime/head.h"

#include <utility>

namespace stp {
namespace {

const ParameterState& projection(const RankState& rank, const Op& op) {
  return rank.parameters(op)[static_cast<size_t>(HeadParameter::projection)];
}

// The first entry of the vocabulary that the rank holds.
int64_t first_entry(const RankState& rank, const Op& op) {
  return rank.place.tp * projection(rank, op).weight.rows;
}

Tensor make_statistics(const RankState& rank, int64_t columns) {
  const Training& training = rank.context->training;
  return rank.device.allocate(*rank.compute, MemoryKind::working, statistics_type(training.type),
                              training.tokens(), columns);
}

}  // namespace

void head_forward(const TensorGroup& group, const Op& op, double factor) {
  std::vector<Part> maxima, sums;
  const auto all = [](Part& part, const RankState& rank, Tensor tensor) {
    part = {rank.compute.get(), tensor, std::move(tensor)};
  };
  for (RankState* rank : group.ranks) {
    const UnitContext& context = *rank->context;
    SavedUnit& saved = rank->saved_unit(op);
    Kernels& kernels = rank->device.kernels();
    if (!context.sequence_parallel)
      norm_forward(context, *rank->compute, rank->parameters(op), rank->take(op.input), saved,
                   MemoryKind::saved, MemoryKind::saved);
    Tensor gathered = context.sequence_parallel ? rank->take(op.input) : Tensor{};
    const ParameterState& weight = projection(*rank, op);
    saved[Saved::logits_gradient] =
        context.make(*rank->compute, MemoryKind::saved, context.tokens(), weight.weight.rows);
    kernels.issue(*rank->compute, kernel::Gemm{.transpose_b = true,
                                               .a = gathered ? gathered : saved[Saved::norm_output],
                                               .b = weight.weight,
                                               .c = saved[Saved::logits_gradient]});
    if (gathered) rank->device.release(*rank->compute, gathered);
    all(maxima.emplace_back(), *rank, make_statistics(*rank, 1));
    all(sums.emplace_back(), *rank, make_statistics(*rank, 2));
    kernels.issue(*rank->compute,
                  kernel::RowMaximum{.logits = saved[Saved::logits_gradient], .maximum = maxima.back().in});
  }
  group.inside->all_reduce(Reduce::maximum, maxima);
  for (size_t i = 0; i < group.ranks.size(); ++i) {
    RankState& rank = *group.ranks[i];
    rank.device.kernels().issue(*rank.compute,
                                kernel::ExponentialSums{.logits = rank.saved_unit(op)[Saved::logits_gradient],
                                                        .maximum = maxima[i].in,
                                                        .targets = rank.targets[op.microbatch],
                                                        .first = first_entry(rank, op),
                                                        .sums = sums[i].in});
  }
  group.inside->all_reduce(Reduce::sum, sums);
  for (size_t i = 0; i < group.ranks.size(); ++i) {
    RankState& rank = *group.ranks[i];
    Kernels& kernels = rank.device.kernels();
    kernels.issue(*rank.compute, kernel::CrossEntropy{.maximum = maxima[i].in,
                                                      .sums = sums[i].in,
                                                      .targets = rank.targets[op.microbatch],
                                                      .first = first_entry(rank, op),
                                                      .factor = factor,
                                                      .logits = rank.saved_unit(op)[Saved::logits_gradient],
                                                      .loss = rank.loss});
    kernels.issue(*rank.compute, kernel::CheckFinite{.tensor = rank.loss, .what = "the loss"});
    rank.device.release(*rank.compute, maxima[i].in);
    rank.device.release(*rank.compute, sums[i].in);
  }
}

void head_input_gradient(const TensorGroup& group, const Op& op) {
  std::vector<Part> parts;
  // Each rank's gradient is a summand; so is its contribution to the gradient of the norm's gain.
  const auto norm = [&](RankState& rank, const Tensor& gradient) {
    norm_backward(*rank.context, *rank.compute, rank.parameters(op), rank.saved_unit(op), 0, {}, gradient);
  };
  const bool scatters = group.ranks.front()->context->sequence_parallel;
  for (RankState* rank : group.ranks) {
    const UnitContext& context = *rank->context;
    const ParameterState& weight = projection(*rank, op);
    const auto make = [&](int64_t rows) {
      return context.make(*rank->compute, MemoryKind::working, rows, weight.weight.columns);
    };
    const Tensor gradient = make(context.tokens());
    rank->device.kernels().issue(
        *rank->compute,
        kernel::Gemm{.a = rank->saved_unit(op)[Saved::logits_gradient], .b = weight.weight, .c = gradient});
    if (!scatters) norm(*rank, gradient);
    parts.push_back({rank->compute.get(), gradient, scatters ? make(context.own_tokens()) : gradient});
  }
  if (scatters)
    group.inside->reduce_scatter(parts);
  else
    group.inside->all_reduce(Reduce::sum, parts);
  for (size_t i = 0; i < group.ranks.size(); ++i) {
    RankState& rank = *group.ranks[i];
    rank.values[op.output] = parts[i].out;
    if (!scatters) continue;
    norm(rank, parts[i].out);
    rank.device.release(*rank.compute, parts[i].in);
  }
}

}  // namespace stp
