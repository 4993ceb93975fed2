// Times of generating, validating, lowering and simulating a schedule: each step alone, and all steps as in
// `stp simulate`. Two layers per chunk. items_per_second counts the Program's ops for every step.
#include <benchmark/benchmark.h>

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "baselines/registry.h"
#include "stp/base/allocator.h"
#include "stp/cost/cost_table.h"
#include "stp/cost/step_bound.h"
#include "stp/program/lower.h"
#include "stp/schedule/validate.h"
#include "stp/simulate/simulate.h"
#include "stp/version.h"

namespace stp {
namespace {

constexpr Contention kContention{0.83, 0.9};

CostTable cost_table() {
  CostTable table;
  for (const Unit unit : kLayerUnits)
    for (const UnitPass pass : kUnitPasses)
      table.at(unit, pass) = pass == UnitPass::F || pass == UnitPass::I ? 1 : 0.35;
  table.at(Unit::head, UnitPass::F) = table.at(Unit::head, UnitPass::I) =
      table.at(Unit::head, UnitPass::W_late) = 1;
  table.all_reduce = 0.3;
  table.transfer_within_node = table.transfer_between_nodes = 0.05;
  return table;
}

struct Case {
  const Generator* generator;
  GeneratorRequest request;
  std::vector<int> layers;

  Case(const Generator* which, int p, int m) : generator(which) {
    request.pp = p;
    request.microbatches = m;
    const PassCosts costs = pass_costs(cost_table(), 2);
    request.costs = costs;
    request.chunks = which->chunks;
    layers.assign(which->chunks * p, 2);
  }
  [[nodiscard]] Schedule generate() const { return generator->make(request); }
  [[nodiscard]] Program lowered(Schedule schedule) const { return lower(std::move(schedule), layers, {}); }
};

template <typename T>
size_t bytes(const std::vector<T>& elements) {
  return elements.size() * sizeof(T);
}
size_t bytes(const Program& program) {
  return bytes(program.streams) + bytes(program.ops) + bytes(program.on_stream) + bytes(program.rank_begin) +
         bytes(program.depends_begin) + bytes(program.depends);
}

// The input of a step. Google Benchmark enters a benchmark several times, so the last one is kept.
struct Fixture {
  std::string key;
  Program program;
  std::vector<double> seconds;
};
const Fixture& fixture(const Case& c) {
  static std::optional<Fixture> last;
  const std::string key = std::string(c.generator->name) + " " + std::to_string(c.request.pp) + " " +
                          std::to_string(c.request.microbatches);
  if (!last || last->key != key) {
    last.reset();  // before the next is made, to save memory
    last = Fixture{key, c.lowered(c.generate()), {}};
    last->seconds = op_seconds(last->program, cost_table());
  }
  return *last;
}

// Takes the case and its fixture, and does its work once.
using Step = void (*)(const Case&, const Fixture&);

struct NamedStep {
  const char* name;
  Step step;
};
constexpr NamedStep kSteps[] = {
    {"generate", [](const Case& c, const Fixture& /*from*/) { benchmark::DoNotOptimize(c.generate()); }},
    {"validate", [](const Case& /*c*/, const Fixture& from) { validate(from.program.schedule); }},
    {"lower",
     [](const Case& c, const Fixture& from) { benchmark::DoNotOptimize(c.lowered(from.program.schedule)); }},
    {"simulate", [](const Case& /*c*/,
                    const Fixture& from) { benchmark::DoNotOptimize(simulate(from.program, from.seconds)); }},
    {"simulate_contended",
     [](const Case& /*c*/, const Fixture& from) {
       benchmark::DoNotOptimize(simulate(from.program, from.seconds, kContention));
     }},
    {"all", [](const Case& c, const Fixture& /*from*/) {
       Schedule schedule = c.generate();
       validate(schedule);
       const Program program = c.lowered(std::move(schedule));
       benchmark::DoNotOptimize(simulate(program, op_seconds(program, cost_table()), kContention));
     }}};

void run(benchmark::State& state, const Generator* generator, Step step) {
  const Case c(generator, static_cast<int>(state.range(0)), static_cast<int>(state.range(1)));
  const Fixture& from = fixture(c);
  // Where one iteration is enough, it would be the one for which the kernel clears up to a gigabyte of pages.
  if (state.max_iterations == 1) step(c, from);
  for ([[maybe_unused]] const auto _ : state) step(c, from);
  const auto ops = static_cast<int64_t>(from.program.ops.size());
  state.SetItemsProcessed(state.iterations() * ops);
  state.SetComplexityN(ops);
  state.counters["program_ops"] = static_cast<double>(ops);
  state.counters["program_bytes"] = benchmark::Counter(
      static_cast<double>(bytes(from.program)), benchmark::Counter::kDefaults, benchmark::Counter::kIs1024);
}

void register_all() {
  constexpr const char* kSchedules[] = {"stp", "1f1b-i", "zb-v", "zb-auto", "gis"};
  // By size, the smallest first. Within a size, each schedule's Program is made once. zb-auto takes long to
  // make.
  for (const auto& [p, m] : {std::pair{4, 64}, {8, 256}, {16, 256}, {64, 1024}, {512, 1536}})
    for (const char* schedule : std::span(kSchedules).first(p > 64 ? 3 : std::size(kSchedules)))
      for (const NamedStep& step : kSteps)
        benchmark::RegisterBenchmark((std::string(schedule) + "/" + step.name).c_str(), run,
                                     &find_generator(schedule), step.step)
            ->ArgNames({"p", "m"})
            ->Args({p, m})
            ->Unit(benchmark::kMillisecond);
  // Time over the number of ops, p = 8: a step is linear if the fit's RMS is small.
  for (const char* schedule : kSchedules) {
    for (const NamedStep& step : kSteps) {
      auto* growing =
          benchmark::RegisterBenchmark(("linear/" + std::string(schedule) + "/" + step.name).c_str(), run,
                                       &find_generator(schedule), step.step);
      growing->ArgNames({"p", "m"})->Unit(benchmark::kMillisecond)->Complexity(benchmark::oN);
      for (int m = 64; m <= 4096; m *= 4) growing->Args({8, m});
    }
  }
}

void bound(benchmark::State& state) {
  const int p = static_cast<int>(state.range(0));
  const Placement placement = Placement::v(p);
  const std::vector<int> layers(placement.stages(), 2);
  const CostTable table = cost_table();
  for ([[maybe_unused]] const auto _ : state)
    benchmark::DoNotOptimize(step_bound(placement, 4 * p, layers,
                                        {.release = Release::released, .embedding = true}, table, kContention,
                                        Vocabulary::whole));
}
BENCHMARK(bound)->RangeMultiplier(2)->Range(4, 16)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace stp

int main(int argc, char** argv) {
  stp::keep_freed_memory();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::AddCustomContext("stp_version", STP_VERSION);
  benchmark::AddCustomContext("stp_revision",
                              std::string(*STP_GIT_REVISION == 0 ? "unknown" : STP_GIT_REVISION) +
                                  (STP_GIT_DIRTY != 0 ? " and changes" : ""));
  benchmark::AddCustomContext("stp_build_type", STP_BUILD_TYPE);
  stp::register_all();
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
