// overlap: a product on the compute streams and an all-reduce on the communication streams of all ranks, each
// alone and both together within one sample, so that drift cancels. The row's time is until both are done;
// lib/stp/cost/overlap.h defines the four figures beside it, and the rates while both run.
#include "stp/cost/overlap.h"
#include "stp/report/statistics.h"

#include "linears.h"
#include "suite.h"

namespace stp::microbench {
namespace {

class OverlapWork : public Prepared {
 public:
  OverlapWork(Machine& machine, const Gemm& gemm, double bytes)
      : machine_(machine), gemm_(gemm), bytes_(bytes), product_(gemm_work(machine, gemm)) {
    for (int rank = 0; rank < machine.ranks(); ++rank)
      messages_.push_back(machine.make(
          rank, static_cast<int64_t>(bytes) / static_cast<int64_t>(bytes_of(machine.type())), 1));
  }
  double sample(int calls) override {
    const Machine::Work products = [&](int rank) {
      for (int call = 0; call < calls; ++call) product_(rank);
    };
    const Machine::Exchange reduces = [&] {
      for (int call = 0; call < calls; ++call)
        machine_.group().all_reduce(Reduce::sum, machine_.parts(messages_, messages_));
    };
    // Alone, alone, together, and again: of each the median, so that one interruption does not show.
    constexpr int kRounds = 3;
    std::vector<double> compute, communication, compute_together, communication_together;
    for (int round = 0; round < kRounds; ++round) {
      compute.push_back(machine_.time(products, {}).compute / calls);
      communication.push_back(machine_.time({}, reduces).communication / calls);
      const Machine::Times together = machine_.time(products, reduces);
      compute_together.push_back(together.compute / calls);
      communication_together.push_back(together.communication / calls);
    }
    alone_ = {median(compute), median(communication)};
    figures_ = overlap_figures(
        {alone_.compute, alone_.communication, median(compute_together), median(communication_together)});
    return figures_.together_s;
  }
  [[nodiscard]] std::map<std::string, double> counters(double /*seconds*/) const override {
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
  Machine& machine_;
  const Gemm gemm_;
  const double bytes_;
  Machine::Work product_;
  std::vector<Tensor> messages_;
  OverlapFigures figures_{};
  Machine::Times alone_;
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
               .prepare = [linear, bytes](Machine& machine) {
                 return std::make_unique<OverlapWork>(machine, linear.forward, bytes);
               }});
  };
  for (const int ranks : options.ranks)
    for (const ModelConfig& model : options.models) {
      if (skip_unless_sharded(suite, "overlap", model, ranks)) continue;
      for (const Linear& linear : linears(model, options.tokens, ranks)) {
        if (linear.name != "projection" && linear.name != "gate_up") continue;
        // A unit's own all-reduce, and a quarter and four times of it.
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
