#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "baselines/registry.h"
#include "commands.h"
#include "schedule_table.h"
#include "stp/base/json_input.h"
#include "stp/schedule/csv.h"

namespace stp {
namespace {

std::string written(const Schedule& schedule, const std::string& format) {
  if (format == "json") return json_text(to_json(schedule)) + "\n";
  if (format == "csv") return to_csv(schedule, CsvForm::compute_only);
  if (format == "csv-comms") return to_csv(schedule, CsvForm::compute_comms);
  if (format == "csv-comms-waits") return to_csv(schedule, CsvForm::compute_comms_waits);
  return to_text(schedule);
}

// Says what a large schedule costs before it is made. Measured: generators and output take up to 1 µs and 150
// bytes per chunk and microbatch of each rank.
void announce_cost(const Generator& generator, const GeneratorRequest& request) {
  constexpr double kLarge = 1 << 22;
  const int chunks = request.chunks > 0 ? request.chunks : generator.chunks;
  const double passes = double{1} * request.pp * chunks * request.microbatches;
  if (passes < kLarge || passes > kMaxChunkPasses) return;  // more are refused
  std::fprintf(stderr, "stp: %.0f million chunk passes: expect about %.1f GB of memory and %.0f s\n",
               passes / 1e6, passes * 150 / 1e9, std::ceil(passes / 1e6));
}

}  // namespace

void schedule_command(const ScheduleOptions& options) {
  if (options.table) {
    std::fputs(schedule_table(options.request.pp, options.request.microbatches).c_str(), stdout);
    return;
  }
  if (options.name.empty())
    throw InputError("", "NAME", "is missing", "name a schedule, or ask for all with --table");
  GeneratorRequest request = options.request;
  if (!options.costs.empty()) {
    for (const double cost : options.costs)
      if (!std::isfinite(cost) || cost < 0)
        throw InputError("", "--costs", "a cost is negative or not finite",
                         "write four numbers from 0 up, F,I,W,p2p");
    request.costs = {options.costs[0], options.costs[1], options.costs[2], options.costs[3]};
  }
  const Generator& generator = find_generator(options.name);
  if (!generator.cost_aware && (!options.costs.empty() || request.memory_limit > 0))
    throw InputError("", options.costs.empty() ? "--memory-limit" : "--costs",
                     options.name + " does not read it", "leave it out");
  announce_cost(generator, request);
  const Schedule schedule = make_schedule(generator, request);
  const std::string text = written(schedule, options.format);
  std::fwrite(text.data(), 1, text.size(), stdout);
}

}  // namespace stp
