#include "stp/runtime/head.h"

namespace stp {
namespace {

const ParameterState& projection(const RankState& rank, const Op& op) {
  return with_role(rank.parameters(op), Role::first);
}

// The first entry of the vocabulary that the rank holds.
int64_t first_entry(const RankState& rank, const Op& op) {
  return projection(rank, op).shard * projection(rank, op).weight.rows;
}

Tensor make_statistics(const RankState& rank, Stream& stream, int64_t columns) {
  const UnitContext& context = *rank.context;
  return rank.device.allocate(stream, MemoryKind::working, statistics_type(context.training.type),
                              context.tokens(), columns);
}

// All rows of statistics, or those of the tokens that the rank's gradient has.
Tensor own_rows(const UnitContext& context, const Tensor& all) {
  const int64_t rows = context.own_tokens();
  return all.part(rows == all.rows ? 0 : context.tp_index * rows * all.columns, rows, all.columns);
}

}  // namespace

void head_statistics(const TensorGroup& group, const Op& op) {
  std::vector<Part> maxima, sums;
  std::vector<Tensor> own;
  for (RankState* rank : group.ranks) {
    SavedUnit& saved = rank->saved_unit(op);
    const Tensor maximum = saved[Between::maximum] = make_statistics(*rank, *rank->compute, 1),
                 sum = saved[Between::sums] = make_statistics(*rank, *rank->compute, 2);
    maxima.push_back({rank->compute.get(), maximum, maximum});
    sums.push_back({rank->compute.get(), sum, sum});
    own.push_back(make_statistics(*rank, *rank->compute, 1));
    rank->device.kernels().issue(*rank->compute,
                                 kernel::ExponentialSums{.logits = saved[Saved::logits_gradient],
                                                         .targets = rank->targets[op.microbatch],
                                                         .first = first_entry(*rank, op),
                                                         .maximum = maximum,
                                                         .own = own.back(),
                                                         .sums = sum});
  }
  group.inside->all_reduce(Reduce::maximum, maxima);
  for (size_t i = 0; i < group.ranks.size(); ++i) {
    RankState& rank = *group.ranks[i];
    rank.device.kernels().issue(
        *rank.compute,
        kernel::RescaleRows{
            .own = own[i], .maximum = maxima[i].in, .sums = {}, .factor = 1, .x = sums[i].in, .columns = 1});
    rank.device.release(*rank.compute, own[i]);
  }
  group.inside->all_reduce(Reduce::sum, sums);
}

void head_loss(const TensorGroup& group, const Op& op, double factor) {
  for (RankState* each : group.ranks) {
    RankState& rank = *each;
    SavedUnit& saved = rank.saved_unit(op);
    rank.device.kernels().issue(*rank.compute, kernel::CrossEntropy{.maximum = saved[Between::maximum],
                                                                    .sums = saved[Between::sums],
                                                                    .targets = rank.targets[op.microbatch],
                                                                    .first = first_entry(rank, op),
                                                                    .factor = factor,
                                                                    .logits = saved[Saved::logits_gradient],
                                                                    .loss = rank.loss});
    rank.device.kernels().issue(*rank.compute, kernel::CheckFinite{.tensor = rank.loss, .what = "the loss"});
    rank.device.release(*rank.compute, saved[Between::maximum]);
    rank.device.release(*rank.compute, saved[Between::sums]);
  }
}

void sum_head_gradient(const TensorGroup& group, const Op& op) {
  const bool scatters = group.ranks.front()->context->strategy.sequence_parallel;
  const auto sum = [&](const auto& tensor_of) {
    std::vector<Part> parts;
    for (RankState* rank : group.ranks) {
      const UnitContext& context = *rank->context;
      Tensor& gradient = tensor_of(*rank);
      const Tensor whole = gradient;
      if (scatters)
        gradient = context.make(*rank->compute, MemoryKind::working, context.own_tokens(), whole.columns);
      parts.push_back({rank->compute.get(), whole, gradient});
    }
    if (!scatters) return group.inside->all_reduce(Reduce::sum, parts);
    group.inside->reduce_scatter(parts);
    for (size_t i = 0; i < parts.size(); ++i)
      group.ranks[i]->device.release(*group.ranks[i]->compute, parts[i].in);
  };
  const auto gradient_of = [&](RankState& rank) -> Tensor& { return rank.values[op.output]; };
  sum(gradient_of);
  if (op.pass == Pass::S)
    return sum([&](RankState& rank) -> Tensor& { return rank.saved_unit(op)[Between::target_rows]; });
  for (RankState* rank : group.ranks)
    if (scatters)
      norm_backward(*rank->context, *rank->compute, rank->parameters(op), rank->saved_unit(op), 0, {},
                    gradient_of(*rank));
}

Tensor exponentials(RankState& rank, const Op& op) {
  const UnitContext& context = *rank.context;
  Kernels& kernels = rank.device.kernels();
  SavedUnit& saved = rank.saved_unit(op);
  const Tensor &logits = saved[Saved::logits_gradient], &table = projection(rank, op).weight;
  Tensor powers = context.make(*rank.compute, MemoryKind::working, logits.rows, logits.columns);
  kernels.issue(*rank.compute, kernel::Copy{.from = logits, .to = powers});
  kernels.issue(*rank.compute, kernel::CrossEntropy{.maximum = saved[Between::maximum],
                                                    .sums = {},
                                                    .targets = {},
                                                    .first = 0,
                                                    .factor = 1,
                                                    .logits = powers,
                                                    .loss = {}});
  saved[Between::target_rows] = context.make(*rank.compute, MemoryKind::working, logits.rows, table.columns);
  kernels.issue(*rank.compute, kernel::EmbeddingForward{.tokens = rank.targets[op.microbatch],
                                                        .table = table,
                                                        .first = first_entry(rank, op),
                                                        .out = saved[Between::target_rows]});
  return powers;
}

namespace {

// The softmax is the exponentials' share of all ranks' sum; of it the target's row is subtracted. Each rank
// of a tensor-parallel group has the whole of the group's gradient, or its rows: it makes a summand of the
// gain's.
void finish_gradient(const VocabularyPart& part, const Op& op, const Tensor& own, double factor) {
  RankState& rank = part.rank;
  const UnitContext& context = *rank.context;
  Kernels& kernels = rank.device.kernels();
  SavedUnit& saved = rank.saved_unit(op);
  const Tensor& gradient = rank.values.at(op.output);
  Tensor& rows = saved[Between::target_rows];
  const double times = context.strategy.sequence_parallel ? 1 : context.tp();
  kernels.issue(part.stream, kernel::RescaleRows{.own = own_rows(context, own),
                                                 .maximum = own_rows(context, saved[Between::maximum]),
                                                 .sums = own_rows(context, saved[Between::sums]),
                                                 .factor = factor / times,
                                                 .x = gradient,
                                                 .columns = gradient.columns});
  kernels.issue(part.stream, kernel::Scale{.factor = -factor / times, .in = rows, .out = rows});
  kernels.issue(part.stream, kernel::AddRows{.in = rows, .first = 0, .out = gradient});
  rank.device.release(part.stream, rows);
  norm_backward(context, part.stream, rank.parameters(op), saved, 0, {}, gradient, true);
  if (times > 1) kernels.issue(part.stream, kernel::Scale{.factor = times, .in = gradient, .out = gradient});
}

}  // namespace

void merge_statistics(Group& group, std::span<const VocabularyPart> parts, const Op& op, double factor) {
  std::vector<Part> maxima, sums;
  std::vector<Tensor> own;
  for (const auto& [rank, stream] : parts) {
    SavedUnit& saved = rank.saved_unit(op);
    own.push_back(make_statistics(rank, stream, 1));
    rank.device.kernels().issue(stream, kernel::Copy{.from = saved[Between::maximum], .to = own.back()});
    maxima.push_back({&stream, saved[Between::maximum], saved[Between::maximum]});
    sums.push_back({&stream, saved[Between::sums], saved[Between::sums]});
  }
  group.all_reduce(Reduce::maximum, maxima);
  for (size_t i = 0; i < parts.size(); ++i)
    parts[i].rank.device.kernels().issue(
        parts[i].stream,
        kernel::RescaleRows{
            .own = own[i], .maximum = maxima[i].in, .sums = {}, .factor = 1, .x = sums[i].in, .columns = 1});
  group.all_reduce(Reduce::sum, sums);
  for (size_t i = 0; i < parts.size(); ++i) {
    if (op.output != kNoValue) finish_gradient(parts[i], op, own[i], factor);
    parts[i].rank.device.release(parts[i].stream, own[i]);
  }
}

}  // namespace stp
