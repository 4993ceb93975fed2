#include "stp/cost/unit_costs.h"

#include <nlohmann/json.hpp>
#include <numeric>

namespace stp {

CostTable unit_cost_table(JsonInput input, const Strategy& strategy) {
  constexpr double kLongestSeconds = 1e9;
  CostTable table;
  const auto read = [&](const std::string& key) { return input.number_or(key, 0, 0, kLongestSeconds); };
  const auto read_parts = [&](UnitPass pass) {
    const std::string name = to_string(Unit::attn, pass);
    if (input.has(name))
      throw input.error(name, "is given, but parallel.cp divides it",
                        "write " + name + "_before, " + name + "_core and " + name + "_after");
    const auto part = [&](UnitPart which) { return read(name + suffix(which)); };
    const double before = part(UnitPart::before), core = part(UnitPart::core), after = part(UnitPart::after);
    const int steps = strategy.steps(Unit::attn, pass, UnitPart::core);
    table.parts_of(Unit::attn, pass) = {
        .before = {before}, .core = std::vector(steps, core), .after = {after}};
    table.at(Unit::attn, pass) = before + steps * core + after;
  };
  const auto read_pass = [&](Unit unit, UnitPass pass) {
    const std::string key = to_string(unit, pass);
    double& mean = table.at(unit, pass);
    if (!input.has(key) || !input.value(key).is_array()) {
      mean = read(key);
      return;
    }
    const std::vector<double> all = input.numbers(key, 0, kLongestSeconds);
    if (all.size() != static_cast<size_t>(strategy.pp))
      throw input.error(
          key, "has " + std::to_string(all.size()) + " entries for " + std::to_string(strategy.pp) + " ranks",
          "write one number, or one for each rank");
    mean = std::accumulate(all.begin(), all.end(), 0.0) / strategy.pp;
    table.by_rank[{unit, pass}] = all;
  };
  const bool in_parts = strategy.cp > 1;
  for (const Unit unit : kUnits)
    for (const UnitPass pass : kUnitPasses)
      if (!is_vision(unit) && has_pass(unit, pass) &&
          !(in_parts && unit == Unit::attn && (pass == UnitPass::F || pass == UnitPass::I)))
        read_pass(unit, pass);
  if (in_parts) {
    read_parts(UnitPass::F);
    read_parts(UnitPass::I);
    table.exchange.fill(read(strategy.exchanges_heads() ? "all_to_all" : "kv_exchange"));
  }
  table.all_reduce = read("all_reduce");
  table.transfer_within_node = table.transfer_between_nodes = table.transfer_beside_another = read("p2p");
  table.gradient_reduce_per_layer = read("gradient_reduce");
  table.offload_per_layer = read("offload");
  table.reload_per_layer = read("reload");
  const double of_all = read("vocabulary");
  table.vocabulary = {of_all, of_all, of_all, of_all};
  input.done();
  return table;
}

}  // namespace stp
