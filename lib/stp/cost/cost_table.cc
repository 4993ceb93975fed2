#include "stp/cost/cost_table.h"

#include <algorithm>

namespace stp {
namespace {

constexpr double kLongestSeconds = 1e9;
constexpr int kAllReducesPerLayer = 2;  // of one direction: attention's and the MLP's

double seconds(const CostTable::Parts& parts, const Op& op) {
  switch (op.part) {
    case AttnPart::before:
      return parts.before;
    case AttnPart::core:
      return op.step == 0 ? parts.first_step : parts.step;
    case AttnPart::after:
      return parts.after;
    case AttnPart::whole:
      break;
  }
  return 0;
}

double sum(const CostTable::Parts& parts, int context_parallel) {
  return parts.before + parts.first_step + (context_parallel - 1) * parts.step + parts.after;
}

// What the exchanges of one unit's ring add to it where nothing else runs, in the order of the Program.
double exposed_exchanges(const CostTable& table, const CostTable::Parts& parts, bool backward) {
  const int steps = table.context_parallel;
  double core = 0, ring = 0, brought = 0, working = 0;  // ends, from that of the part before the core on
  const auto exchange = [&] { return ring = std::max(ring, core) + table.kv_exchange; };
  for (int step = 0; step < steps; ++step) {
    const double needed = brought, before = core;
    if (step + 1 < steps) brought = exchange();
    if (backward && step > 0) exchange();
    const double time = step == 0 ? parts.first_step : parts.step;
    core = std::max(before, needed) + time;
    working += time;
  }
  return (backward ? exchange() : core) - working;
}

double seconds(const Program& program, OpId id, const CostTable& table) {
  const Op& op = program.ops[id];
  const auto of_stage = [&](const std::vector<double>& by_stage, double per_layer) {
    const int stage = program.stage_of(id);
    return by_stage.empty() ? per_layer * program.layers_per_stage[stage] : by_stage[stage];
  };
  const auto of_rank = [&](const std::vector<double>& by_rank) {
    return by_rank.empty() ? 0 : by_rank[program.stream_of(id).rank];
  };
  const auto near = [&] {
    const ProgramStream& link = program.stream_of(id);
    return table.node_of_rank.empty() || table.node_of_rank[link.rank] == table.node_of_rank[link.peer];
  };
  switch (op.kind) {
    case OpKind::compute:
      if (op.part != AttnPart::whole)
        return seconds(op.unit_pass == UnitPass::F ? table.attn_F : table.attn_I, op);
      return table.at(op.unit, op.unit_pass);
    case OpKind::kv_exchange:
    case OpKind::kv_gradient_exchange:
      return table.kv_exchange;
    case OpKind::weight_gradients:
      return table.weight_gradients(op.unit);
    case OpKind::all_reduce:
      return table.all_reduce_of(op.unit, op.unit_pass);
    case OpKind::reduce_scatter:
      return table.reduce_scatter;
    case OpKind::all_gather:
      return table.all_gather;
    case OpKind::transfer:
      return op.tensors() * (near() ? table.transfer_within_node : table.transfer_between_nodes);
    case OpKind::norm_prefix:
    case OpKind::norm_total:
      return near() ? table.number_within_node : table.number_between_nodes;
    case OpKind::gradient_norm:
      return of_rank(table.gradient_norm);
    case OpKind::gradient_reduce:
      return of_stage(table.gradient_reduce, table.gradient_reduce_per_layer);
    case OpKind::gradient_scatter:
      return of_stage(table.gradient_scatter, table.gradient_reduce_per_layer / 2);
    case OpKind::weight_gather:
      return of_stage(table.weight_gather, table.gradient_reduce_per_layer / 2);
    case OpKind::embedding_reduce:
      return table.embedding_reduce;
    case OpKind::optimizer:
      return of_rank(table.optimizer);
  }
  return 0;
}

}  // namespace

CostTable unit_cost_table(JsonInput input, int context_parallel) {
  CostTable table;
  const auto read = [&](const std::string& key) { return input.number_or(key, 0, 0, kLongestSeconds); };
  const auto read_parts = [&](CostTable::Parts& parts, UnitPass pass) {
    const std::string name = to_string(Unit::attn, pass);
    if (input.has(name))
      throw input.error(name, "is given, but parallel.cp divides it",
                        "write " + name + "_before, " + name + "_core and " + name + "_after");
    const auto part = [&](AttnPart which) { return read(name + suffix(which)); };
    parts.before = part(AttnPart::before);
    parts.first_step = parts.step = part(AttnPart::core);
    parts.after = part(AttnPart::after);
    table.at(Unit::attn, pass) = sum(parts, context_parallel);
  };
  const bool in_parts = context_parallel > 1;
  for (const Unit unit : kUnits)
    for (const UnitPass pass : kUnitPasses)
      if (unit != Unit::embedding && !is_vision(unit) && has_pass(unit, pass) &&
          !(in_parts && unit == Unit::attn && (pass == UnitPass::F || pass == UnitPass::I)))
        table.at(unit, pass) = read(to_string(unit, pass));
  if (in_parts) {
    table.context_parallel = context_parallel;
    read_parts(table.attn_F, UnitPass::F);
    read_parts(table.attn_I, UnitPass::I);
    table.kv_exchange = read("kv_exchange");
  }
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
  const bool ring = table.context_parallel > 1;
  const auto exposed = [&](const CostTable::Parts& parts, bool backward) {
    return ring ? exposed_exchanges(table, parts, backward) : 0;
  };
  const double forward = layers * (both(UnitPass::F) + collectives + exposed(table.attn_F, false));
  double backward = layers * (both(UnitPass::I) + collectives + exposed(table.attn_I, true));
  if (table.core_recomputed) backward += layers * exposed(table.attn_F, false);
  return {.F = forward,
          .I = backward + (table.recomputed ? forward : 0),
          .W = layers * (both(UnitPass::W_early) + both(UnitPass::W_late)),
          .p2p = table.transfer_between_nodes};
}

}  // namespace stp
