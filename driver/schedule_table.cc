#include "schedule_table.h"

#include <algorithm>

#include "baselines/registry.h"
#include "stp/base/error.h"
#include "stp/program/issue_order.h"
#include "stp/program/lower.h"
#include "stp/schedule/validate.h"
#include "stp/simulate/simulate.h"
#include "table.h"

namespace stp {
namespace {

constexpr double kAllReduce = 0.25;  // per layer and direction, in its two all-reduces together

std::string row(const Generator& generator, int pp, int microbatches) {
  const std::string what = " | " + std::string(generator.range) + " | " + generator.summary + " |\n";
  const std::string name = "| " + std::string(generator.name) + " | ";
  GeneratorRequest request{pp, microbatches, 0, {}, 0};
  Schedule schedule{"", Placement::loop(1, 1), 1, {}};
  try {
    schedule = make_schedule(generator, request);
  } catch (const InputError& error) {
    return name + "– | – | – | – | – | – | –" + what;
  }
  const int layers_per_chunk =
      2 / schedule.chunks();  // all generators have one chunk a rank or two by default
  const auto largest = [&](bool freed_at_I) {
    const std::vector<int> peaks = peak_activations(schedule, freed_at_I);
    return std::to_string(layers_per_chunk * *std::max_element(peaks.begin(), peaks.end()));
  };
  const Program program =
      lower(schedule, std::vector<int>(schedule.placement.stages(), layers_per_chunk), {});
  const Timeline plain = simulate(program, op_seconds(program, reference_costs(false)));
  const Timeline exposed = simulate(program, op_seconds(program, reference_costs(true)));
  const auto transfers = std::count_if(program.ops.begin(), program.ops.end(),
                                       [](const Op& op) { return op.kind == OpKind::transfer; });
  const double compute = 6.0 * microbatches;  // two layers a rank, three passes each
  return name + std::to_string(schedule.chunks()) + " | " + fixed(plain.step_s - compute, 2) + " | " +
         fixed((exposed.step_s - plain.step_s) / kAllReduce, 2) + " | " + largest(false) + " | " +
         largest(true) + " | " + fixed(static_cast<double>(transfers) / microbatches, 0) + " | " +
         std::to_string(issue_order(program).receives_ahead) + what;
}

}  // namespace

CostTable reference_costs(bool all_reduces) {
  CostTable table;
  for (const Unit unit : {Unit::attn, Unit::mlp})
    for (const UnitPass pass : {UnitPass::F, UnitPass::I, UnitPass::W_late}) table.at(unit, pass) = 0.5;
  table.all_reduce = all_reduces ? kAllReduce / 2 : 0;
  return table;
}

std::string schedule_table(int pp, int microbatches) {
  check_size(pp, 2, microbatches);
  std::string text =
      "| schedule | v | bubble | exposed all-reduces | peak until W | peak until I | transfers per "
      "microbatch | receives "
      "ahead | range | what it is |\n|---|---|---|---|---|---|---|---|---|---|\n";
  ProgressBar progress("simulating schedules", generators().size());
  for (const Generator* generator : generators()) {
    text += row(*generator, pp, microbatches);
    progress.step();
  }
  return text;
}

}  // namespace stp
