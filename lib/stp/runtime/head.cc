#include "stp/runtime/head.h"

namespace stp {
namespace {

const ParameterState& projection(const RankState& rank, const Op& op) {
  return with_role(rank.parameters(op), Role::first);
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

void head_loss(const TensorGroup& group, const Op& op, double factor) {
  std::vector<Part> maxima, sums;
  for (RankState* rank : group.ranks) {
    const Tensor maximum = make_statistics(*rank, 1), sum = make_statistics(*rank, 2);
    maxima.push_back({rank->compute.get(), maximum, maximum});
    sums.push_back({rank->compute.get(), sum, sum});
    rank->device.kernels().issue(
        *rank->compute,
        kernel::RowMaximum{.logits = rank->saved_unit(op)[Saved::logits_gradient], .maximum = maximum});
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
    rank.device.kernels().issue(*rank.compute,
                                kernel::CrossEntropy{.maximum = maxima[i].in,
                                                     .sums = sums[i].in,
                                                     .targets = rank.targets[op.microbatch],
                                                     .first = first_entry(rank, op),
                                                     .factor = factor,
                                                     .logits = rank.saved_unit(op)[Saved::logits_gradient],
                                                     .loss = rank.loss});
    rank.device.kernels().issue(*rank.compute, kernel::CheckFinite{.tensor = rank.loss, .what = "the loss"});
    rank.device.release(*rank.compute, maxima[i].in);
    rank.device.release(*rank.compute, sums[i].in);
  }
}

void sum_head_gradient(const TensorGroup& group, const Op& op) {
  const bool scatters = group.ranks.front()->context->strategy.sequence_parallel;
  std::vector<Part> parts;
  for (RankState* rank : group.ranks) {
    const UnitContext& context = *rank->context;
    const Tensor& gradient = rank->values[op.output];
    parts.push_back(
        {rank->compute.get(), gradient,
         scatters ? context.make(*rank->compute, MemoryKind::working, context.own_tokens(), gradient.columns)
                  : gradient});
  }
  if (!scatters) return group.inside->all_reduce(Reduce::sum, parts);
  group.inside->reduce_scatter(parts);
  for (size_t i = 0; i < group.ranks.size(); ++i) {
    RankState& rank = *group.ranks[i];
    rank.values[op.output] = parts[i].out;
    norm_backward(*rank.context, *rank.compute, rank.parameters(op), rank.saved_unit(op), 0, {},
                  parts[i].out);
    rank.device.release(*rank.compute, parts[i].in);
  }
}

}  // namespace stp
