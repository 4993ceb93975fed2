#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "baselines/registry.h"
#include "commands.h"
#include "schedule_table.h"
#include "stp/base/error.h"
#include "stp/schedule/csv.h"

namespace stp {
namespace {

struct ScheduleOptions {
  std::string name, format = "text";
  GeneratorRequest request;
  std::vector<double> costs;
  bool table = false;
};

std::string written(const Schedule& schedule, const std::string& format) {
  if (format == "json") return to_json(schedule).dump() + "\n";
  if (format == "csv") return to_csv(schedule, CsvForm::compute_only);
  if (format == "csv-comms") return to_csv(schedule, CsvForm::compute_comms);
  if (format == "csv-comms-waits") return to_csv(schedule, CsvForm::compute_comms_waits);
  return to_text(schedule);
}

void schedule_command(ScheduleOptions& options) {
  if (options.table) {
    std::fputs(schedule_table(options.request.pp, options.request.microbatches).c_str(), stdout);
    return;
  }
  if (options.name.empty())
    throw InputError("", "NAME", "is missing", "name a schedule, or ask for all with --table");
  if (!options.costs.empty()) {
    for (const double cost : options.costs)
      if (!std::isfinite(cost) || cost < 0)
        throw InputError("", "--costs", "a cost is negative or not finite",
                         "write four numbers from 0 up, F,I,W,p2p");
    options.request.costs = {options.costs[0], options.costs[1], options.costs[2], options.costs[3]};
  }
  const Generator& generator = find_generator(options.name);
  if (!generator.cost_aware && (!options.costs.empty() || options.request.memory_limit > 0))
    throw InputError("", options.costs.empty() ? "--memory-limit" : "--costs",
                     options.name + " does not read it", "leave it out");
  const Schedule schedule = make_schedule(generator, options.request);
  const std::string text = written(schedule, options.format);
  std::fwrite(text.data(), 1, text.size(), stdout);
}

std::string list_of_generators() {
  size_t width = 0;
  for (const Generator* generator : generators())
    width = std::max(width, std::string_view(generator->name).size() + 2);
  std::string text = "Schedules:\n";
  for (const Generator* generator : generators()) {
    std::string name = generator->name;
    name.resize(width, ' ');
    text += "  " + name + generator->summary + "\n";
  }
  return text;
}

}  // namespace

void add_schedule(CLI::App& app) {
  auto options = std::make_shared<ScheduleOptions>();
  CLI::App* command = app.add_subcommand("schedule", "Print a schedule: per rank, its blocks in order");
  command->footer(list_of_generators());
  CLI::Option* name = command->add_option("NAME", options->name, "The schedule's name");
  command->add_option("--pp", options->request.pp, "Pipeline ranks p")->required();
  command->add_option("--microbatches", options->request.microbatches, "Microbatches m of a step")
      ->required();
  command->add_option("--chunks", options->request.chunks, "Chunks a rank, v (default: the schedule's own)")
      ->check(CLI::Range(1, kMaxChunks));
  command
      ->add_option("--costs", options->costs,
                   "F,I,W,p2p of one chunk, for cost-aware generators (default 1,1,1,0)")
      ->delimiter(',')
      ->expected(4);
  command
      ->add_option("--memory-limit", options->request.memory_limit,
                   "Most activations alive on a rank, for cost-aware generators")
      ->check(CLI::PositiveNumber);
  CLI::Option* format = command
                            ->add_option("--format", options->format,
                                         "text, json, csv (PyTorch's compute_only), csv-comms (its "
                                         "compute_comms) or csv-comms-waits (the "
                                         "same with the WAIT actions that torch 2.15 demands)")
                            ->check(CLI::IsMember({"text", "json", "csv", "csv-comms", "csv-comms-waits"}));
  command
      ->add_flag("--table", options->table,
                 "All schedules at this p and m side by side, instead of one order")
      ->excludes(name)
      ->excludes(format);
  command->callback([options] { schedule_command(*options); });
}

}  // namespace stp
