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
  const Schedule schedule = make_schedule(generator, request);
  const std::string text = written(schedule, options.format);
  std::fwrite(text.data(), 1, text.size(), stdout);
}

}  // namespace stp
