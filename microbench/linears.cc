#include "linears.h"

#include "stp/base/error.h"

namespace stp::microbench {

std::vector<Linear> linears(const ModelConfig& model, int tokens, int tp) {
  try {
    check_shardable(model, tp);
  } catch (const InputError&) {
    return {};
  }
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

}  // namespace stp::microbench
