#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>

#include "commands.h"
#include "interrupt.h"
#include "output_folder.h"
#include "progress.h"
#include "run_python.h"
#include "run_simulated.h"
#include "stp/base/error.h"
#include "stp/report/chrome_trace.h"

namespace stp {
namespace {

namespace fs = std::filesystem;

constexpr const char* kShort = ".short";

// Returns the named schedule, or all schedules of the configuration.
std::vector<ScheduleChoice> chosen(const TraceOptions& options, const Experiment& experiment,
                                   const std::string& file) {
  std::vector<ScheduleChoice> choices;
  for (const ScheduleChoice& choice : experiment.schedules)
    if (options.schedule.empty() || name_of(choice) == options.schedule) choices.push_back(choice);
  if (choices.empty())
    throw InputError(file, "--schedule",
                     "\"" + options.schedule + "\" is not a schedule of this configuration",
                     "name one of " + joined(experiment.schedules, name_of));
  return choices;
}

}  // namespace

void trace_command(const TraceOptions& options) {
  const Scenario scenario = read_scenario(options.scenario, Changes(options.set));
  say_differences(scenario);
  const Experiment& experiment = configuration_at(scenario, options.configuration);
  const std::vector<ScheduleChoice> choices = chosen(options, experiment, scenario.file);
  OutputFolder folder(options.out);
  std::vector<std::string> traces;
  std::string left_out;  // of how many microbatches each trace holds
  // Timelines are drawn from whole traces, with bubbles of the whole step.
  const auto shorten = [&] {
    for (const std::string& trace : traces)
      if (fs::exists(trace + kShort)) fs::rename(trace + kShort, trace);
  };
  std::string missing;  // why there are no timelines
  try {
    std::optional<ProgressBar> progress(std::in_place, "simulating " + scenario.name, choices.size());
    for (const ScheduleChoice& choice : choices) {
      check_interrupted();
      const SimulatedRun run = run_simulated(choice, experiment, scenario.file);
      traces.push_back(unused_path(folder.path(), file_word(to_json(run.result)), ".json"));
      write_trace(traces.back(), run);
      if (const int ends = microbatches_of_short_trace(run.program); ends > 0 && !options.all_microbatches) {
        write_trace(traces.back() + kShort, run, ends);
        left_out = "Each trace holds the first and the last microbatches of " +
                   std::to_string(run.program.schedule.microbatches) + ", " + std::to_string(ends) +
                   " each; --all-microbatches writes all.\n";
      }
      progress->step();
    }
    progress.reset();
    missing = failure_of_python("plots/timelines.py", traces);
  } catch (const Interrupted&) {
    shorten();
    folder.publish_interrupted();
  } catch (const InputError& error) {
    throw error.in_file(scenario.file);
  }
  shorten();
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder.path())) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  folder.publish();
  std::printf("Traces (simulated; open the .json in ui.perfetto.dev or chrome://tracing):\n");
  for (const std::string& name : names) std::printf("  %s\n", (folder.target() / name).c_str());
  std::fputs(left_out.c_str(), stdout);
  if (!missing.empty()) std::fprintf(stderr, "stp: no SVG timelines were drawn: %s\n", missing.c_str());
}

}  // namespace stp
