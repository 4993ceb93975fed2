#include "stp/cost/cost_table.h"

#include <algorithm>
#include <numeric>

#include "stp/cost/chain_costs.h"

namespace stp {
namespace {

constexpr int kAllReducesPerLayer = 2;  // of one direction: attention's and the MLP's

// Whether both ends of a transfer are on one node.
bool is_near(const Program& program, OpId transfer, const CostTable& table) {
  const ProgramStream& link = program.stream_of(transfer);
  return table.near(link.rank, link.peer);
}

// Whether a transfer's block also has a transfer to another rank, on another node: the two are adjacent in
// the rank's list.
bool is_beside_another(const Program& program, OpId transfer, const CostTable& table) {
  const ProgramStream& link = program.stream_of(transfer);
  const auto shares = [&](OpId other) {
    if (other >= program.ops.size() || program.ops[other].kind != OpKind::transfer) return false;
    const ProgramStream& beside = program.stream_of(other);
    return beside.rank == link.rank && beside.peer != link.peer && !is_near(program, other, table) &&
           program.ops[other].block == program.ops[transfer].block;
  };
  return (transfer > 0 && shares(transfer - 1)) || shares(transfer + 1);
}

double compute_seconds(const Op& op, int rank, const CostTable& table) {
  // Only a full backward runs weight gradients beside its collectives.
  const bool in_bulk = table.bulk && op.pass == Pass::B && (op.unit == Unit::attn || op.unit == Unit::mlp);
  const CostTable::Bulk* const bulk = in_bulk ? &(*table.bulk)[static_cast<size_t>(op.unit)] : nullptr;
  if (op.kind == OpKind::weight_gradients)
    return table.on_rank(rank, op.unit, UnitPass::W_early) +
           (bulk ? bulk->W_late : table.on_rank(rank, op.unit, UnitPass::W_late));
  if (bulk && op.unit_pass == UnitPass::W_late) return bulk->W_late;
  if (bulk && op.unit_pass == UnitPass::I && op.part == UnitPart::after) return bulk->after_I;
  if (op.part != UnitPart::whole) return table.parts_of(op.unit, op.unit_pass).step(op.part, op.step);
  const bool in_S = op.pass == Pass::S && op.unit_pass == UnitPass::I;
  return table.on_rank(rank, op.unit, op.unit_pass) + (in_S ? table.vocabulary.in_S : 0);
}

double scatter_seconds(const Op& op, const Strategy& strategy, const CostTable& table) {
  if (op.part == UnitPart::whole) return table.collectives(op.unit, op.unit_pass).scatter;
  const bool last = op.step + 1 == strategy.steps(op.unit, UnitPass::F, UnitPart::after);
  return (last ? table.last_piece_scatter : table.piece_scatter)[static_cast<size_t>(op.unit)];
}

double vocabulary_reduce_seconds(const Op& op, const CostTable& table) {
  if (op.pass != Pass::S) return table.vocabulary.sum;
  return op.output == kNoValue ? table.vocabulary.statistics : table.vocabulary.sum_and_statistics;
}

double tensor_transfer_seconds(const Program& program, OpId id, const CostTable& table) {
  if (is_near(program, id, table)) return table.transfer_within_node;
  return is_beside_another(program, id, table) ? table.transfer_beside_another : table.transfer_between_nodes;
}

double pipeline_reduce_seconds(const Program& program, int rank, const CostTable& table) {
  if (!table.pipeline_reduce.empty()) return table.pipeline_reduce[rank];
  int layers = 0;
  for (int chunk = 0; chunk < program.schedule.chunks(); ++chunk)
    layers += program.layers_per_stage[program.schedule.placement.stage(rank, chunk)];
  return layers * table.gradient_reduce_per_layer;
}

double seconds(const Program& program, OpId id, const CostTable& table) {
  const Op& op = program.ops[id];
  const auto of_stage = [&](const std::vector<double>& by_stage, double per_layer) {
    const int stage = program.stage_of(id);
    return by_stage.empty() ? per_layer * program.layers_per_stage[stage] : by_stage[stage];
  };
  const auto of_bucket = [&](const std::vector<std::vector<double>>& by_stage, double per_layer) {
    const int stage = program.stage_of(id);
    return by_stage.empty() ? per_layer * program.layers_per_stage[stage] : by_stage[stage].at(op.step);
  };
  const auto of_rank = [&](const std::vector<double>& by_rank) {
    return by_rank.empty() ? 0 : by_rank[program.stream_of(id).rank];
  };
  switch (op.kind) {
    case OpKind::compute:
    case OpKind::weight_gradients:
      return compute_seconds(op, program.stream_of(id).rank, table);
    case OpKind::exchange:
      return table.at(op.exchange);
    case OpKind::all_reduce:
      return table.all_reduce_of(op.unit, op.unit_pass);
    case OpKind::reduce_scatter:
      return scatter_seconds(op, program.strategy, table);
    case OpKind::all_gather:
      return table.collectives(op.unit, op.unit_pass).gather;
    case OpKind::transfer:
      return op.tensors() * tensor_transfer_seconds(program, id, table);
    case OpKind::norm_prefix:
    case OpKind::norm_total:
      return is_near(program, id, table) ? table.number_within_node : table.number_between_nodes;
    case OpKind::gradient_norm:
      return of_rank(table.gradient_norm);
    case OpKind::gradient_reduce:
      return of_bucket(table.gradient_reduce, table.gradient_reduce_per_layer);
    case OpKind::gradient_scatter:
      return of_bucket(table.gradient_scatter, table.gradient_reduce_per_layer / 2);
    case OpKind::weight_gather:
      return of_bucket(table.weight_gather, table.gradient_reduce_per_layer / 2);
    case OpKind::embedding_reduce:
      return table.embedding_reduce;
    case OpKind::vocabulary_broadcast:
      return table.vocabulary.broadcast;
    case OpKind::vocabulary_reduce:
      return vocabulary_reduce_seconds(op, table);
    case OpKind::pipeline_reduce:
      return pipeline_reduce_seconds(program, program.stream_of(id).rank, table);
    case OpKind::optimizer:
      return of_rank(table.optimizer);
    case OpKind::offload:
      return of_stage(table.offload, program.strategy.offload * table.offload_per_layer);
    case OpKind::reload:
      return of_stage(table.reload, program.strategy.offload * table.reload_per_layer);
  }
  return 0;
}

// The factor of an op's seconds, by its layer and its microbatch. `first_layer` is by virtual stage.
double factor(const Program& program, OpId id, const CostTable& table, const std::vector<int>& first_layer) {
  const Op& op = program.ops[id];
  const bool of_layer = op.kind == OpKind::compute || op.kind == OpKind::weight_gradients;
  double product = 1;
  if (!table.layer_factors.empty() && of_layer && is_of_layer(op.unit) && !is_vision(op.unit))
    product = table.layer_factors.at(first_layer[program.stage_of(id)] + op.layer);
  if (table.microbatch_factors.empty()) return product;
  const auto of_value = [&](ValueId value) {
    const int microbatch = static_cast<int>(value % program.schedule.microbatches);
    return microbatch_factor(table.microbatch_factors, program, microbatch);
  };
  if (op.kind == OpKind::transfer)
    return op.tensors() == 1 ? of_value(op.input) : (of_value(op.input) + of_value(op.output)) / 2;
  if (of_layer || is_collective(op.kind) || op.kind == OpKind::exchange || is_host_copy(op.kind))
    product *= microbatch_factor(table.microbatch_factors, program, op.microbatch);
  return product;
}

// Seconds of each block of a rank if neither other blocks nor other ranks delay it.
std::vector<double> block_seconds(const Program& program, int rank, const std::vector<double>& seconds) {
  const OpId begin = program.rank_begin[rank], end = program.rank_begin[rank + 1];
  std::vector<double> of_blocks(program.schedule.ranks[rank].size(), 0), ends(end - begin, 0);
  std::map<StreamKind, double> stream_ends;
  int block = -1;
  OpId first = begin;
  for (OpId id = begin; id < end; ++id) {
    const Op& op = program.ops[id];
    const StreamKind stream = program.stream_of(id).kind;
    const bool in_block =
        stream == StreamKind::compute || stream == StreamKind::tp || stream == StreamKind::cp;
    if (op.block < 0 || !in_block) continue;
    if (op.block != block) {
      block = op.block;
      first = id;
      stream_ends.clear();
    }
    double start = stream_ends[stream];
    for (const OpId needed : program.dependencies(id))
      if (needed >= first && needed < id) start = std::max(start, ends[needed - begin]);
    ends[id - begin] = stream_ends[stream] = start + seconds[id];
    of_blocks[block] = std::max(of_blocks[block], ends[id - begin]);
  }
  return of_blocks;
}

}  // namespace

double CostTable::Parts::step(UnitPart part, int step) const {
  switch (part) {
    case UnitPart::norm:
      return norm;
    case UnitPart::before:
      return before.at(step);
    case UnitPart::core:
      return core.at(step);
    case UnitPart::after:
      return after.at(step);
    case UnitPart::whole:
      break;
  }
  return 0;
}

std::vector<double> op_seconds_without_factors(const Program& program, const CostTable& table) {
  std::vector<double> result(program.ops.size());
  for (OpId op = 0; op < program.ops.size(); ++op) result[op] = seconds(program, op, table);
  return result;
}

std::vector<double> op_seconds(const Program& program, const CostTable& table) {
  std::vector<double> result = op_seconds_without_factors(program, table);
  if (table.layer_factors.empty() && table.microbatch_factors.empty()) return result;
  std::vector<int> first_layer(program.layers_per_stage.size());
  std::exclusive_scan(program.layers_per_stage.begin(), program.layers_per_stage.end(), first_layer.begin(),
                      0);
  for (OpId op = 0; op < program.ops.size(); ++op) result[op] *= factor(program, op, table, first_layer);
  return result;
}

double microbatch_factor(const std::vector<double>& factors, const Program& program, int microbatch) {
  if (factors.empty()) return 1;
  return factors.at(microbatch / (program.schedule.microbatches / factors.size()));
}

std::optional<double> tp_communication_share(const CostTable& table) {
  const double compute = table.at(Unit::attn, UnitPass::F) + table.at(Unit::mlp, UnitPass::F);
  const double communication =
      kAllReducesPerLayer * (table.all_reduce + table.reduce_scatter + table.all_gather);
  if (compute + communication <= 0) return std::nullopt;
  return communication / (compute + communication);
}

std::optional<double> offload_ratio_bound(const Program& program, const CostTable& table,
                                          const std::vector<double>& seconds) {
  if (program.strategy.offload == 0 || program.strategy.offload_chunks > 0) return std::nullopt;
  std::optional<double> bound;
  for (int rank = 0; rank < program.schedule.pp(); ++rank) {
    const std::vector<Block>& blocks = program.schedule.ranks[rank];
    const std::vector<double> of_blocks = block_seconds(program, rank, seconds);
    for (OpId id = program.rank_begin[rank]; id < program.rank_begin[rank + 1]; ++id) {
      const Op& op = program.ops[id];
      if (op.kind != OpKind::offload || blocks[op.block].braided()) continue;
      const int stage = program.stage_of(id);
      const double forward = of_blocks[op.block];
      const double all = table.offload_of_all.empty()
                             ? table.offload_per_layer * program.layers_per_stage[stage]
                             : table.offload_of_all[stage];
      double ratio = all > 0 ? std::min(1.0, forward / all) : 1;
      // Only whole tensors are copied, so the share of the copy is smaller than the ratio.
      if (seconds[id] <= forward) ratio = std::max(ratio, program.strategy.offload);
      bound = std::min(bound.value_or(1), ratio);
    }
  }
  return bound;
}

PassCosts pass_costs(const CostTable& table, int layers, const Lowering& lowering) {
  CostTable of_mean_rank = table;
  of_mean_rank.by_rank.clear();
  const UnitChains units = unit_chains(of_mean_rank, lowering);
  const int alike = std::min(layers, units.count);
  const auto sum = [&](ChainCost PassChains::*pass, double ChainCost::*seconds) {
    return alike * (units.layer.*pass.*seconds) + (layers - alike) * (units.other.*pass.*seconds);
  };
  return {sum(&PassChains::F, &ChainCost::alone), sum(&PassChains::I, &ChainCost::alone),
          sum(&PassChains::W, &ChainCost::compute), table.transfer_between_nodes};
}

}  // namespace stp
