// gemm: the GEMMs of the models' linear layers, by tensor-parallel size: forward, input gradient and weight
// gradient; with one busy rank and, if ranks share processors, with all ranks busy. On devices,
// `gemm_fastest` uses the library's fastest candidate for each shape.

#include "stp/base/error.h"
#include "stp/runtime/gemm_calls.h"
#include "suite.h"

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

double gemm_bytes(const Gemm& gemm, int ranks, DType type) {
  const auto element = static_cast<double>(bytes_of(type)),
             result = static_cast<double>(bytes_of(gemm_call(gemm, type).c.type));
  return ranks * (element * (gemm.m * gemm.k + gemm.k * gemm.n) + result * gemm.m * gemm.n);
}

BenchEnv::Work gemm_work(BenchEnv& env, const Gemm& gemm) {
  std::vector<kernel::Gemm> calls(env.ranks(), gemm_call(gemm, env.type()));
  for (int rank = 0; rank < env.ranks(); ++rank)
    for (TensorView* operand : {&calls[rank].a, &calls[rank].b, &calls[rank].c})
      *operand = env.make(rank, operand->type, operand->rows, operand->columns);
  return [&env, calls](int rank) { env.kernels(rank).issue(env.compute(rank), calls[rank]); };
}

namespace {

Fixture gemm_fixture(BenchEnv& env, const Gemm& gemm, const Counters& others, bool cold) {
  return compute_work(
      env, gemm_work(env, gemm),
      [=](double seconds) {
        Counters counters = others;
        counters.insert(
            {{"m", gemm.m}, {"n", gemm.n}, {"k", gemm.k}, {"gflop_per_s", gemm.flops() / seconds / 1e9}});
        return counters;
      },
      cold);
}

}  // namespace

void add_gemm(Suite& suite) {
  const Options& options = suite.options();
  std::vector<int> busy{1};
  if (options.machine.processors > 1) busy.push_back(options.machine.processors);
  for (const ModelConfig& model : options.models)
    for (const int tp : options.tp) {
      if (skip_unless_sharded(suite, "gemm", model, tp)) continue;
      for (const Linear& linear : linears(model, options.tokens, tp))
        for (const int ranks : busy) {
          if (ranks > 1 && tp > 1) continue;  // one size shows the cost of sharing the machine
          // Cold caches matter if a GEMM is small and its operands are not in the cache.
          if (ranks == 1)
            suite.add(
                {.name = "gemm_cold/" + model.name + "/" + linear.name + "/forward/tp:" + std::to_string(tp),
                 .bytes = gemm_bytes(linear.forward, 1, options.machine.type),
                 .prepare = [linear](BenchEnv& env) { return gemm_fixture(env, linear.forward, {}, true); }});
          for (const Gemm& gemm :
               {linear.forward, input_gradient(linear.forward), weight_gradient(linear.forward)}) {
            const auto add = [&](const std::string& family, bool fastest) {
              suite.add({.name = family + "/" + model.name + "/" + linear.name + "/" + to_string(gemm.kind) +
                                 "/tp:" + std::to_string(tp) + "/busy:" + std::to_string(ranks),
                         .on = {.ranks = ranks, .fastest_gemms = fastest},
                         .bytes = gemm_bytes(gemm, ranks, options.machine.type),
                         .prepare = [=](BenchEnv& env) {
                           return gemm_fixture(env, gemm, {{"tp", tp}, {"busy", ranks}}, false);
                         }});
            };
            add("gemm", false);
            if (options.machine.processors == 0) add("gemm_fastest", true);
          }
        }
    }
}

}  // namespace stp::microbench
