#include "linears.h"

#include "stp/base/error.h"

namespace stp::microbench {

std::vector<Linear> linears(const ModelConfig& model, int tokens, int tp) {
  check_shardable(model, tp);
  std::vector<Linear> all;
  const auto add = [&](Unit unit, const std::vector<std::string>& names) {
    const Work of = work(model, {tokens, 1, tp}, Implementation::suite, unit, UnitPass::F);
    for (size_t i = 0; i < names.size(); ++i) all.push_back({names[i], of.gemms.at(i)});
  };
  add(Unit::attn, {"qkv", "projection"});
  add(Unit::mlp, {"gate_up", "down"});
  add(Unit::head, {"head"});
  return all;
}

bool skip_unless_sharded(Suite& suite, const std::string& family, const ModelConfig& model, int tp) {
  try {
    check_shardable(model, tp);
    return false;
  } catch (const InputError& error) {
    suite.add({.name = family + "/" + model.name + "/tp:" + std::to_string(tp),
               .prepare = {},
               .skip = error.what()});
    return true;
  }
}

}  // namespace stp::microbench
