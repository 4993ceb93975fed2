// overlap: a GEMM on the compute streams and an all-reduce on the communication streams of all ranks, each
// alone and both together within one sample, so that drift cancels. The row's time is until both end;
// lib/stp/cost/overlap.h defines the other figures.
#include "stp/cost/overlap.h"
#include "stp/report/statistics.h"

#include "suite.h"

namespace stp::microbench {
namespace {

class OverlapWork : public Fixture {
 public:
  OverlapWork(BenchEnv& env, const Gemm& gemm, double bytes)
      : env_(env), gemm_(gemm), bytes_(bytes), gemm_work_(gemm_work(env, gemm)) {
    for (int rank = 0; rank < env.ranks(); ++rank)
      messages_.push_back(
          env.make(rank, static_cast<int64_t>(bytes) / static_cast<int64_t>(bytes_of(env.type())), 1));
  }
  double sample(int calls) override {
    const BenchEnv::Work gemms = [&](int rank) {
      for (int call = 0; call < calls; ++call) gemm_work_(rank);
    };
    const BenchEnv::Exchange reduces = [&] {
      for (int call = 0; call < calls; ++call)
        env_.group().all_reduce(Reduce::sum, env_.parts(messages_, messages_));
    };
    // Alone, alone, together, repeated: the median of each, so that one interruption has no effect.
    constexpr int kRounds = 3;
    std::vector<double> compute, communication, compute_together, communication_together;
    for (int round = 0; round < kRounds; ++round) {
      compute.push_back(env_.time(gemms, {}).compute / calls);
      communication.push_back(env_.time({}, reduces).communication / calls);
      const BenchEnv::Times together = env_.time(gemms, reduces);
      compute_together.push_back(together.compute / calls);
      communication_together.push_back(together.communication / calls);
    }
    alone_ = {median(compute), median(communication)};
    figures_ = overlap_figures(
        {alone_.compute, alone_.communication, median(compute_together), median(communication_together)});
    return figures_.together_s;
  }
  [[nodiscard]] Counters counters(double /*seconds*/) const override {
    return {{"m", gemm_.m},
            {"n", gemm_.n},
            {"k", gemm_.k},
            {"size", bytes_},
            {"compute_alone_us", 1e6 * alone_.compute},
            {"communication_alone_us", 1e6 * alone_.communication},
            {"compute_slowdown", figures_.compute_slowdown},
            {"communication_slowdown", figures_.communication_slowdown},
            {"compute_rate", figures_.compute_rate},
            {"communication_rate", figures_.communication_rate},
            {"exposed_us", 1e6 * figures_.exposed_s},
            {"exposed_share", figures_.exposed_share},
            {"saved_us", 1e6 * figures_.saved_s}};
  }

 private:
  BenchEnv& env_;
  const Gemm gemm_;
  const double bytes_;
  BenchEnv::Work gemm_work_;
  std::vector<Tensor> messages_;
  OverlapFigures figures_{};
  BenchEnv::Times alone_;
};

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
               .prepare = [linear, bytes](BenchEnv& env) {
                 return std::make_unique<OverlapWork>(env, linear.forward, bytes);
               }});
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
