#include "stp/cost/cost_table.h"

namespace stp {
namespace {

constexpr double kLongestSeconds = 1e9;
constexpr int kAllReducesPerLayer = 2;  // of one direction: attention's and the MLP's

double seconds(const Program& program, OpId id, const CostTable& table) {
  const Op& op = program.ops[id];
  const auto of_stage = [&](const std::vector<double>& by_stage, double per_layer) {
    const int stage = program.stage_of(id);
    return by_stage.empty() ? per_layer * program.layers_per_stage[stage] : by_stage[stage];
  };
  switch (op.kind) {
    case OpKind::compute:
      return table.at(op.unit, op.unit_pass);
    case OpKind::weight_gradients:
      return table.weight_gradients(op.unit);
    case OpKind::all_reduce:
      return table.all_reduce;
    case OpKind::reduce_scatter:
      return table.reduce_scatter;
    case OpKind::all_gather:
      return table.all_gather;
    case OpKind::transfer: {
      const ProgramStream& link = program.stream_of(id);
      const bool near =
          table.node_of_rank.empty() || table.node_of_rank[link.rank] == table.node_of_rank[link.peer];
      return op.tensors() * (near ? table.transfer_within_node : table.transfer_between_nodes);
    }
    case OpKind::gradient_reduce:
      return of_stage(table.gradient_reduce, table.gradient_reduce_per_layer);
    case OpKind::gradient_scatter:
      return of_stage(table.gradient_scatter, table.gradient_reduce_per_layer / 2);
    case OpKind::weight_gather:
      return of_stage(table.weight_gather, table.gradient_reduce_per_layer / 2);
    case OpKind::embedding_reduce:
      return table.embedding_reduce;
    case OpKind::optimizer:
      return table.optimizer.empty() ? 0 : table.optimizer[program.stream_of(id).rank];
  }
  return 0;
}

}  // namespace

CostTable unit_cost_table(JsonInput input) {
  CostTable table;
  for (const Unit unit : kUnits)
    for (const UnitPass pass : kUnitPasses)
      if (unit != Unit::embedding && has_pass(unit, pass))
        table.at(unit, pass) = input.number_or(to_string(unit, pass), 0, 0, kLongestSeconds);
  table.all_reduce = input.number_or("all_reduce", 0, 0, kLongestSeconds);
  table.transfer_within_node = table.transfer_between_nodes = input.number_or("p2p", 0, 0, kLongestSeconds);
  table.gradient_reduce_per_layer = input.number_or("gradient_reduce", 0, 0, kLongestSeconds);
  input.done();
  return table;
}

std::vector<double> op_seconds(const Program& program, const CostTable& table) {
  std::vector<double> result(program.ops.size());
  for (OpId op = 0; op < program.ops.size(); ++op) result[op] = seconds(program, op, table);
  return result;
}

std::optional<double> tp_communication_share(const CostTable& table) {
  const double compute = table.at(Unit::attn, UnitPass::F) + table.at(Unit::mlp, UnitPass::F);
  const double communication = kAllReducesPerLayer * table.all_reduce;
  if (compute + communication <= 0) return std::nullopt;
  return communication / (compute + communication);
}

PassCosts pass_costs(const CostTable& table, double layers) {
  const auto both = [&](UnitPass pass) { return table.at(Unit::attn, pass) + table.at(Unit::mlp, pass); };
  // Of a layer, per direction; a table has all-reduces or their replacements.
  const double collectives =
      kAllReducesPerLayer * (table.all_reduce + table.reduce_scatter + table.all_gather);
  const double forward = layers * (both(UnitPass::F) + collectives);
  return {.F = forward,
          .I = layers * (both(UnitPass::I) + collectives) + (table.recomputed ? forward : 0),
          .W = layers * (both(UnitPass::W_early) + both(UnitPass::W_late)),
          .p2p = table.transfer_between_nodes};
}

}  // namespace stp
