// overlap: a GEMM on the compute streams and an all-reduce on the communication streams of all ranks, each
// alone and both together within one sample, so that drift cancels. The row's time is until both end;
// lib/stp/cost/overlap.h defines the other figures.
#include "stp/cost/overlap.h"
#include "stp/report/statistics.h"

#include "suite.h"

namespace stp::microbench {
namespace {

struct LastSample {
  BenchEnv::Times alone;
  OverlapFigures figures{};
};

Fixture overlap(BenchEnv& env, const Gemm& gemm, double bytes) {
  const BenchEnv::Work gemm_of = gemm_work(env, gemm);
  const auto elements = static_cast<int64_t>(bytes) / static_cast<int64_t>(bytes_of(env.type()));
  std::vector<Tensor> messages;
  for (int rank = 0; rank < env.ranks(); ++rank) messages.push_back(env.make(rank, elements, 1));
  const auto last = std::make_shared<LastSample>();
  const auto sample = [=, &env](int calls) {
    const BenchEnv::Work gemms = [&](int rank) {
      for (int call = 0; call < calls; ++call) gemm_of(rank);
    };
    const BenchEnv::Exchange reduces = [&] {
      for (int call = 0; call < calls; ++call)
        env.group().all_reduce(Reduce::sum, env.parts(messages, messages));
    };
    // Alone, alone, together, repeated: the median of each, so that one interruption has no effect.
    constexpr int kRounds = 3;
    std::vector<double> compute, communication, compute_together, communication_together;
    for (int round = 0; round < kRounds; ++round) {
      compute.push_back(env.time(gemms, {}, calls).compute / calls);
      communication.push_back(env.time({}, reduces, calls).communication / calls);
      const BenchEnv::Times together = env.time(gemms, reduces, 2 * calls);
      compute_together.push_back(together.compute / calls);
      communication_together.push_back(together.communication / calls);
    }
    last->alone = {median(compute), median(communication)};
    last->figures = overlap_figures({last->alone.compute, last->alone.communication, median(compute_together),
                                     median(communication_together)});
    return last->figures.together_s;
  };
  return {sample, [=](double /*seconds*/) -> Counters {
            const OverlapFigures& figures = last->figures;
            return {{"m", gemm.m},
                    {"n", gemm.n},
                    {"k", gemm.k},
                    {"size", bytes},
                    {"compute_alone_us", 1e6 * last->alone.compute},
                    {"communication_alone_us", 1e6 * last->alone.communication},
                    {"compute_slowdown", figures.compute_slowdown},
                    {"communication_slowdown", figures.communication_slowdown},
                    {"compute_rate", figures.compute_rate},
                    {"communication_rate", figures.communication_rate},
                    {"exposed_us", 1e6 * figures.exposed_s},
                    {"exposed_share", figures.exposed_share},
                    {"saved_us", 1e6 * figures.saved_s}};
          }};
}

}  // namespace

void add_overlap(Suite& suite) {
  const Options& options = suite.options();
  const bool device = options.machine.processors == 0;
  const auto add = [&](const ModelConfig& model, const Linear& linear, double bytes, const Arrangement& on,
                       const std::string& setting) {
    suite.add({.name = "overlap/" + model.name + "/" + linear.name + "/ranks:" + std::to_string(on.ranks) +
                       "/size:" + std::to_string(static_cast<int64_t>(bytes)) + setting,
               .on = on,
               .bytes = gemm_bytes(linear.forward, on.ranks, options.machine.type) + on.ranks * bytes,
               .prepare = [linear, bytes](BenchEnv& env) { return overlap(env, linear.forward, bytes); }});
  };
  for (const int ranks : options.ranks)
    for (const ModelConfig& model : options.models) {
      if (skip_unless_sharded(suite, "overlap", model, ranks)) continue;
      for (const Linear& linear : linears(model, options.tokens, ranks)) {
        if (linear.name != "projection" && linear.name != "gate_up") continue;
        // The size of a unit's all-reduce, a quarter of it, and four times it.
        const double message =
            static_cast<double>(bytes_of(options.machine.type)) * options.tokens * model.hidden;
        for (const double share : {0.25, 1.0, 4.0}) add(model, linear, message * share, {.ranks = ranks}, "");
        if (!device) continue;
        for (const int ctas : {2, 4, 8, 32})
          add(model, linear, message, {.ranks = ranks, .communication_ctas = ctas},
              "/ctas:" + std::to_string(ctas));
        for (const int multiprocessors : {96, 112, 120})
          add(model, linear, message, {.ranks = ranks, .gemm_multiprocessors = multiprocessors},
              "/multiprocessors:" + std::to_string(multiprocessors));
        add(model, linear, message, {.ranks = ranks, .communication_priority = false}, "/priority:same");
      }
    }
  if (!device)
    suite.add({.name = "overlap/communication_ctas",
               .prepare = {},
               .skip = "processors have no CTAs, multiprocessors to leave free or stream priorities to set"});
}

}  // namespace stp::microbench
