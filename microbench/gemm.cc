// gemm: the products of the models' linear layers, by tensor-parallel size: forward, input and weight
// gradient; with one rank busy and, where ranks share processors, with all. On devices `gemm_fastest` is the
// same with the fastest of all candidates that the library offers for a shape.
#include <array>

#include "linears.h"
#include "suite.h"

namespace stp::microbench {
namespace {

// A product as the runtime asks for it: forward x·wᵀ, input gradient dy·w, weight gradient dyᵀ·x.
struct Operands {
  Tensor a, b, c;
};
// Gradients of weights are summed up in a type of their own.
DType result_type(const Gemm& gemm, DType type) {
  return gemm.product == Product::weight_gradient ? statistics_type(type) : type;
}
Operands operands(Machine& machine, int rank, const Gemm& gemm) {
  const auto m = static_cast<int64_t>(gemm.m), n = static_cast<int64_t>(gemm.n),
             k = static_cast<int64_t>(gemm.k);
  const bool transpose_a = gemm.product == Product::weight_gradient;
  const bool transpose_b = gemm.product == Product::forward;
  return {transpose_a ? machine.make(rank, k, m) : machine.make(rank, m, k),
          transpose_b ? machine.make(rank, n, k) : machine.make(rank, k, n),
          machine.make(rank, result_type(gemm, machine.type()), m, n)};
}

}  // namespace

double gemm_bytes(const Gemm& gemm, int ranks, DType type) {
  const auto element = static_cast<double>(bytes_of(type)),
             result = static_cast<double>(bytes_of(result_type(gemm, type)));
  return ranks * (element * (gemm.m * gemm.k + gemm.k * gemm.n) + result * gemm.m * gemm.n);
}

Machine::Work gemm_work(Machine& machine, const Gemm& gemm) {
  std::vector<Operands> all;
  for (int rank = 0; rank < machine.ranks(); ++rank) all.push_back(operands(machine, rank, gemm));
  const bool transpose_a = gemm.product == Product::weight_gradient;
  const bool transpose_b = gemm.product == Product::forward;
  const double beta = transpose_a ? 1 : 0;  // a weight's gradient is added to what is there
  return [&machine, all, transpose_a, transpose_b, beta](int rank) {
    const Operands& of = all[rank];
    machine.kernels(rank).gemm(machine.compute(rank), transpose_a, transpose_b, 1, of.a, of.b, beta, of.c);
  };
}

void add_gemm(Suite& suite) {
  const Options& options = suite.options();
  std::vector<int> busy{1};
  if (options.machine.processors > 1) busy.push_back(options.machine.processors);
  for (const ModelConfig& model : options.models)
    for (const int tp : options.tp) {
      if (skip_unless_sharded(suite, "gemm", model, tp)) continue;
      for (const Linear& linear : linears(model, options.tokens, tp))
        for (const int ranks : busy) {
          if (ranks > 1 && tp > 1) continue;  // one size shows what sharing the machine costs
          // Cold caches matter where a product is small and its operands come from far.
          if (ranks == 1)
            suite.add(
                {.name = "gemm_cold/" + model.name + "/" + linear.name + "/forward/tp:" + std::to_string(tp),
                 .bytes = gemm_bytes(linear.forward, 1, options.machine.type),
                 .prepare = [linear](Machine& machine) {
                   return std::make_unique<ComputeWork>(
                       machine, gemm_work(machine, linear.forward),
                       [gemm = linear.forward](double seconds) -> std::map<std::string, double> {
                         return {{"m", gemm.m},
                                 {"n", gemm.n},
                                 {"k", gemm.k},
                                 {"gflop_per_s", gemm.flops() / seconds / 1e9}};
                       },
                       true);
                 }});
          for (const Gemm& gemm :
               {linear.forward, input_gradient(linear.forward), weight_gradient(linear.forward)}) {
            const auto add = [&](const std::string& family, bool fastest) {
              const auto counters = [gemm, tp, ranks](double seconds) -> std::map<std::string, double> {
                return {{"m", gemm.m}, {"n", gemm.n},   {"k", gemm.k},
                        {"tp", tp},    {"busy", ranks}, {"gflop_per_s", gemm.flops() / seconds / 1e9}};
              };
              suite.add({.name = family + "/" + model.name + "/" + linear.name + "/" +
                                 to_string(gemm.product) + "/tp:" + std::to_string(tp) +
                                 "/busy:" + std::to_string(ranks),
                         .on = {.ranks = ranks, .fastest_gemms = fastest},
                         .bytes = gemm_bytes(gemm, ranks, options.machine.type),
                         .prepare = [gemm, counters](Machine& machine) {
                           return std::make_unique<ComputeWork>(machine, gemm_work(machine, gemm), counters);
                         }});
            };
            add("gemm", false);
            if (options.machine.processors == 0) add("gemm_fastest", true);
          }
        }
    }
}

}  // namespace stp::microbench
