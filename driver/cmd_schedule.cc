#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>

#include "baselines/registry.h"
#include "commands.h"
#include "progress.h"
#include "stp/base/json_input.h"
#include "stp/program/issue_order.h"
#include "stp/program/lower.h"
#include "stp/schedule/csv.h"
#include "stp/schedule/share_vocabulary.h"
#include "stp/schedule/validate.h"
#include "stp/simulate/simulate.h"
#include "table.h"

namespace stp {
namespace {

std::string written(const Schedule& schedule, const std::string& format) {
  if (format == "json") return json_text(to_json(schedule)) + "\n";
  if (format == "csv") return to_csv(schedule, CsvForm::compute_only);
  if (format == "csv-comms") return to_csv(schedule, CsvForm::compute_comms);
  if (format == "csv-comms-waits") return to_csv(schedule, CsvForm::compute_comms_waits);
  return to_text(schedule);
}

// Says what a large schedule costs before it is made. Measured: generators and output take up to 1 µs and
// 150 bytes per chunk and microbatch of each rank.
void announce_cost(const Generator& generator, const GeneratorRequest& request) {
  const int chunks = request.chunks > 0 ? request.chunks : generator.chunks;
  const double passes = double{1} * request.pp * chunks * request.microbatches;
  if (passes <= kMaxChunkPasses) say_cost(passes, "chunk passes", 150, 1e-6);  // more are refused
}

constexpr double kAllReduce = 0.25;  // a layer and direction, in both all-reduces together

std::string row(const Generator& generator, int pp, int microbatches) {
  const std::string what = " | " + std::string(generator.range) + " | " + generator.summary + " |\n";
  const std::string name = "| " + std::string(generator.name) + " | ";
  const GeneratorRequest request{.pp = pp, .microbatches = microbatches};
  Schedule schedule{"", Placement::loop(1, 1), 1, {}};
  const auto begin = [&](const char* phase) { begin_phase(std::string(generator.name) + ": " + phase); };
  begin("making the schedule");
  try {
    schedule = make_schedule(generator, request);
  } catch (const InputError& error) {
    return name + "– | – | – | – | – | – | –" + what;
  }
  // All generators have one chunk a rank or two by default; a second pipeline has a model of its own.
  const int layers_per_chunk = 2 * schedule.placement.pipelines() / schedule.chunks();
  const auto largest = [&](bool freed_at_I) {
    const std::vector<int> peaks = peak_activations(schedule, freed_at_I);
    return std::to_string(layers_per_chunk * *std::max_element(peaks.begin(), peaks.end()));
  };
  begin("making the program");
  const Program program =
      lower(schedule, std::vector<int>(schedule.placement.stages(), layers_per_chunk), {});
  begin("simulating");
  const Timeline plain = simulate(program, op_seconds(program, reference_costs(false)));
  begin("simulating all-reduces");
  const Timeline exposed = simulate(program, op_seconds(program, reference_costs(true)));
  const auto transfers = std::count_if(program.ops.begin(), program.ops.end(),
                                       [](const Op& op) { return op.kind == OpKind::transfer; });
  const double compute = 6.0 * microbatches;  // two layers a rank, three passes each
  return name + std::to_string(schedule.chunks()) + " | " + fixed(plain.step_s - compute, 2) + " | " +
         fixed((exposed.step_s - plain.step_s) / kAllReduce, 2) + " | " + largest(false) + " | " +
         largest(true) + " | " + fixed(static_cast<double>(transfers) / microbatches, 0) + " | " +
         std::to_string(issue_order(program).receives_ahead) + what;
}

// A Markdown table of all generators at `pp` ranks and `microbatches`, counted on programs of the same model:
// 2p layers of F = I = W = 1 (halved over attention and MLP), so a chunk of v = 1 holds two of them. Columns:
// the bubble (step − one rank's compute) without all-reduces; what all-reduces of 0.25 per layer and
// direction add to the step, in units of 0.25; the largest peak of activations until W and until I, in
// microbatches of one layer; transfers per microbatch; receives ahead; range; what it is.
std::string schedule_table(int pp, int microbatches) {
  check_size(pp, 2, microbatches);
  std::string text =
      "In units of F = I = W = 1 a layer, with two layers a rank, release chain and all-reduces of " +
      shown("%g", kAllReduce) +
      " a layer and direction; exposed all-reduces in units of these, peaks in microbatches of one layer\n\n"
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

}  // namespace

CostTable reference_costs(bool all_reduces) {
  CostTable table;
  for (const Unit unit : kLayerUnits)
    for (const UnitPass pass : {UnitPass::F, UnitPass::I, UnitPass::W_late}) table.at(unit, pass) = 0.5;
  table.all_reduce = all_reduces ? kAllReduce / 2 : 0;
  return table;
}

void schedule_command(const ScheduleOptions& options) {
  if (options.table) {
    std::fputs(schedule_table(options.request.pp, options.request.microbatches).c_str(), stdout);
    return;
  }
  if (options.name.empty())
    throw InputError("", "SCHEDULE", "is missing", "name a schedule, or ask for all with --table");
  GeneratorRequest request = options.request;
  if (!options.costs.empty()) {
    for (const double cost : options.costs)
      if (!(cost >= 0 && cost <= 1e9))
        throw InputError("", "--costs", "a cost is not a number from 0 to 1e9",
                         "write four in any unit of time, F,I,W,p2p");
    request.costs = {options.costs[0], options.costs[1], options.costs[2], options.costs[3]};
  }
  const Generator& generator = find_generator(options.name);
  if (!options.costs.empty() && !generator.cost_aware)
    throw InputError("", "--costs", options.name + " does not read it", "leave it out");
  announce_cost(generator, request);
  std::optional<ProgressBar> progress(std::in_place, "making the schedule " + options.name, 1);
  Schedule schedule = make_schedule(generator, request);
  if (!options.vocabulary.empty()) {
    const bool two = options.vocabulary == method_name(Vocabulary::two_barriers);
    try {
      schedule =
          share_vocabulary(std::move(schedule), two ? Vocabulary::two_barriers : Vocabulary::one_barrier);
    } catch (const InputError& error) {
      throw error.in_field("--vocabulary");
    }
  }
  const std::string text = written(schedule, options.format);
  progress.reset();
  std::fwrite(text.data(), 1, text.size(), stdout);
}

}  // namespace stp
