#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <optional>
#include <sstream>

#include "commands.h"
#include "interrupt.h"
#include "output_folder.h"
#include "parity.h"
#include "run_measured.h"
#include "run_simulated.h"
#include "stp/backends/backends.h"
#include "stp/base/data.h"
#include "stp/base/error.h"
#include "stp/report/chrome_trace.h"
#include "table.h"

namespace stp {
namespace {

struct RunOptions {
  std::string scenario, json, trace, predict, replay_cluster;
  int replay_rank = -1;
  DeviceOptions devices;
  double memory_limit_mib = 0;
};

std::string scientific(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1e", value);
  return text;
}

// How late paced calls were: the mean of a step, and the worst call with its kind of group.
std::vector<std::string> lateness(const Replayed& replayed, size_t steps) {
  double sum = 0, latest = 0;
  std::string where;
  for (const auto& [kind, group] : replayed.groups) {
    sum += group.late_s;
    if (group.latest_s <= latest) continue;
    latest = group.latest_s;
    where = " (" + kind + ")";
  }
  return {fixed(1000 * sum / static_cast<double>(steps), 3), fixed(1000 * latest, 3) + where};
}

// How far predicted steps are from measured ones; where ranks share processors, apart.
class PredictionErrors {
 public:
  void add(double error, bool oversubscribed) { errors_[oversubscribed ? 1 : 0].push_back(std::abs(error)); }
  void leave_out() { ++left_out_; }
  [[nodiscard]] std::string text(const std::string& profile) const {
    std::string text;
    if (left_out_ > 0)
      text += std::to_string(left_out_) +
              " rows were measured while the machine was disturbed, and are left out:\n";
    constexpr const char* kKinds[] = {"a processor for every rank", "more ranks than processors"};
    for (size_t kind = 0; kind < 2; ++kind) {
      const std::vector<double>& some = errors_[kind];
      if (some.empty()) continue;
      const double mean = std::accumulate(some.begin(), some.end(), 0.0) / static_cast<double>(some.size());
      text += "predicted by " + profile + ", " + kKinds[kind] + ": " + fixed(100 * mean, 1) +
              " % off in the mean, " + fixed(100 * *std::max_element(some.begin(), some.end()), 1) +
              " % at worst, over " + std::to_string(some.size()) + " rows\n";
    }
    return text;
  }

 private:
  std::array<std::vector<double>, 2> errors_;
  int left_out_ = 0;
};

void check_place(const RunOptions& options, const Scenario& scenario, const ProcessPlace& place) {
  if (options.replay_rank >= 0)
    throw InputError(
        "", "--replay-rank",
        "is one rank alone, but the launcher started " + std::to_string(place.world_size) + " processes",
        "start it without the launcher");
  for (const Experiment& experiment : scenario.experiments) {
    check_world(experiment.tp * experiment.pp * experiment.dp, place, scenario.file,
                experiment.field.empty() ? "parallel" : experiment.field + ".parallel");
    // What all processes would refuse is refused before they meet.
    if (experiment.run && !experiment.run->skip_refused)
      for (const ScheduleChoice& choice : experiment.schedules)
        schedule_for(choice, experiment, scenario.file);
  }
}

void run_command(RunOptions options, const Invocation& invocation) {
  const std::optional<ProcessPlace> place = place_among_processes(options.devices.backend);
  const bool speaks = !place || place->rank == 0;  // for all
  if (!place) check_backend(options.devices.backend);
  if (place) check_processes(options.devices.backend, options.devices.nccl);
  if (!options.devices.nccl.empty() && !place)
    throw InputError("", "--nccl", "no launcher started several processes, so nothing goes over NCCL",
                     "leave it out");
  if (options.devices.graphs && !backend_has_graphs(options.devices.backend))
    throw InputError("", "--graphs", options.devices.backend + " has none", "leave it out");
  options.devices.memory_limit = static_cast<size_t>(options.memory_limit_mib * (1 << 20));
  const Scenario scenario = read_scenario(options.scenario);
  if (place) {
    check_place(options, scenario, *place);
    check_backend(options.devices.backend, place->local_rank);
  }
  if (speaks) {
    refuse_existing(options.json, "--json");
    refuse_existing(options.trace, "--trace");
  }
  std::optional<HardwareProfile> profile;
  if (!options.predict.empty())
    profile = read_profile(find_data_file(options.predict, "profiles", "", "--predict"));
  if (options.replay_rank >= 0) {
    check_replay(scenario, options.replay_rank);
    options.devices.replay = {
        options.replay_rank,
        read_profile(find_data_file(options.replay_cluster, "profiles", "", "--replay-cluster"))};
  }
  const Evidence evidence = options.devices.replay ? Evidence::replayed : Evidence::measured;
  const std::vector<DType> types = backend_types(options.devices.backend);
  const int most_ranks = place ? 0 : backend_ranks(options.devices.backend);
  size_t steps = 0;
  for (const Experiment& experiment : scenario.experiments) {
    if (profile && most_ranks > 0 && experiment.tp * experiment.pp * experiment.dp > most_ranks)
      throw InputError("", "--predict",
                       "cannot be held against ranks that share one device of " + options.devices.backend,
                       "use scenarios of one rank, --replay-rank, or leave it out");
    if (!experiment.run)
      throw InputError(scenario.file, "run", "is missing: this is a scenario to be simulated",
                       "use stp simulate, or say how it is trained (docs/scenarios.md)");
    if (std::find(types.begin(), types.end(), experiment.run->type) == types.end())
      throw InputError(scenario.file, "run.type",
                       "is " + to_string(experiment.run->type) + ", which " + options.devices.backend +
                           " does not compute in",
                       "use another, or --backend cpu");
    steps += experiment.schedules.size() * (experiment.run->warmup + experiment.run->steps);
  }

  nlohmann::json rows = nlohmann::json::array();
  std::vector<std::string> columns{"schedule",     "model",     "type",    "tp",        "pp",
                                   "dp",           "m",         "step, s", "samples/s", "PP bubble",
                                   "TP bubble",    "saved, MB", "BLAS",    "GFLOP/s",   "loss",
                                   "parity: loss", "gradient"};
  if (profile) columns.insert(columns.end(), {"predicted, s", "error"});
  if (options.devices.time_kernels) columns.insert(columns.end(), {"kernels, s", "step / kernels"});
  if (options.devices.replay) columns.insert(columns.end(), {"late, ms", "latest call, ms"});
  Table table(columns);
  PredictionErrors errors;
  size_t compared = 0, refused = 0;
  std::vector<std::string> broken;
  std::string trace;
  RunGuard guard(std::chrono::duration<double>(options.devices.deadline_s));
  std::optional<Rendezvous> processes;
  if (place) options.devices.processes = &processes.emplace(*place, guard);
  try {
    std::optional<Progress> shown;
    if (speaks) shown.emplace("running " + scenario.name, steps);
    const auto stepped = [&] {
      if (shown) shown->step();
    };
    for (const Experiment& experiment : scenario.experiments) {
      for (const ScheduleChoice& choice : experiment.schedules) {
        if (experiment.run->skip_refused) {
          try {
            schedule_for(choice, experiment, scenario.file);
          } catch (const InputError&) {
            ++refused;
            for (int i = 0; i < experiment.run->warmup + experiment.run->steps; ++i) stepped();
            continue;
          }
        }
        const auto measured = run_measured(choice, experiment, scenario.file, options.devices,
                                           profile ? &*profile : nullptr, [&] {
                                             stepped();
                                             check_interrupted();
                                           });
        if (!measured) continue;  // another process has what this one measured
        const MeasuredRun& run = *measured;
        const Result& result = run.result;
        const Measured& known = *result.measured;
        const Configuration& c = result.configuration;
        rows.push_back(to_json(result));
        if (known.parity) {
          ++compared;
          if (!parity_holds(*known.parity, known.type))
            broken.push_back(result.schedule + ", tp " + std::to_string(c.tp) + ", pp " +
                             std::to_string(c.pp) + ", dp " + std::to_string(c.dp) + ", m " +
                             std::to_string(c.microbatches) + ", " + known.type + ": loss " +
                             scientific(known.parity->loss) + ", gradient " +
                             scientific(known.parity->gradient) +
                             (known.parity->one_rank_gradient
                                  ? ", of one rank " + scientific(*known.parity->one_rank_gradient)
                                  : ""));
        }
        const RankResult* busiest = &result.ranks[0];
        for (const RankResult& rank : result.ranks)
          if (rank.compute_s > busiest->compute_s) busiest = &rank;
        const double step = run.timeline.step_s;
        std::vector<std::string> cells{
            result.schedule,
            c.model,
            known.type,
            std::to_string(c.tp),
            std::to_string(c.pp),
            std::to_string(c.dp),
            std::to_string(c.microbatches),
            fixed(result.step_time_s(), 4),
            fixed(result.throughput(), 2),
            share_text(busiest->pp_bubble_s / step),
            share_text(busiest->tp_bubble_s / step),
            fixed(1000 * *result.peak_memory_gb(), 2),
            share_text(known.blas ? std::optional(known.blas->share) : std::nullopt, 0),
            known.blas ? fixed(known.blas->gflop_per_s, 1) : "–",
            known.losses.empty() ? "–" : fixed(known.losses.back(), 4),
            known.parity ? scientific(known.parity->loss) : "–",
            known.parity ? scientific(known.parity->gradient) : "–"};
        if (known.predicted) {
          const double error = known.predicted->step_time_s / result.step_time_s() - 1;
          // Rows most of whose steps ran on a disturbed machine say nothing of the prediction.
          const bool disturbed =
              2 * known.predicted->disturbed_steps >= static_cast<int>(result.step_times_s.size());
          if (disturbed) {
            errors.leave_out();
          } else {
            errors.add(error, known.predicted->oversubscribed);
          }
          cells.push_back(fixed(known.predicted->step_time_s, 4));
          cells.push_back(fixed(100 * error, 1) + " %" +
                          (known.predicted->oversubscribed ? " (shared)" : "") +
                          (disturbed ? " (disturbed)" : ""));
        }
        if (known.kernel_time_s) {
          cells.push_back(fixed(*known.kernel_time_s, 4));
          cells.push_back(fixed(result.step_time_s() / *known.kernel_time_s, 3));
        }
        if (known.replayed)
          for (const std::string& cell : lateness(*known.replayed, result.step_times_s.size()))
            cells.push_back(cell);
        table.add(cells);
        if (!options.trace.empty()) {
          std::ostringstream out;
          write_chrome_trace(out, run.program, run.timeline);
          trace = out.str();
        }
      }
    }
    if (processes) processes->end();
  } catch (const Cancelled&) {
    throw std::runtime_error(guard.failure());
  }
  if (!speaks) return;
  if (!options.trace.empty()) write_new_file(options.trace, trace);
  nlohmann::json made = make_record(scenario.as_run(), evidence, invocation.argv, "results", std::move(rows));
  made["system"]["accelerator"] = backend_facts(options.devices.backend);
  const std::string record = record_text(made);
  if (options.json == "-") {
    std::fputs(record.c_str(), stdout);
  } else {
    if (!options.json.empty()) write_new_file(options.json, record);
    const std::string whose = options.devices.replay ? "rank " + std::to_string(options.replay_rank) +
                                                           " alone, among peers of " +
                                                           options.devices.replay->profile.name + "; bubbles"
                                                     : "bubbles of the busiest rank";
    std::printf("%s (%s on %s; %s in the last step)\n%s", scenario.title.c_str(), to_string(evidence).c_str(),
                options.devices.backend.c_str(), whose.c_str(), table.text().c_str());
    if (most_ranks > 0 && !options.devices.replay)
      std::puts(
          "All ranks took turns on one device: times are of that, and say nothing of ranks with a device "
          "each");
    if (options.devices.replay)
      std::puts(
          "late: what paced calls of a step took longer than their pace, all together; latest: the worst "
          "call");
    if (refused > 0)
      std::printf("%zu combinations are beyond their schedule's range (stp schedule --help)\n", refused);
    if (profile) std::fputs(errors.text(profile->name).c_str(), stdout);
    if (compared > 0)
      std::printf("parity: %zu of %zu cases equal one rank\n", compared - broken.size(), compared);
  }
  if (!broken.empty()) {
    std::string text =
        std::to_string(broken.size()) + " of " + std::to_string(compared) + " cases differ from one rank";
    for (const std::string& each : broken) text += "\n  " + each;
    throw std::runtime_error(text);
  }
}

}  // namespace

void add_run(CLI::App& app, const Invocation& invocation) {
  auto options = std::make_shared<RunOptions>();
  CLI::App* command = app.add_subcommand("run", "Train a scenario's model on devices");
  command
      ->add_option("SCENARIO", options->scenario,
                   "A scenario file with a `run`, or the name of one of the suite's")
      ->required();
  command
      ->add_option(
          "--backend", options->devices.backend,
          "The devices: cpu (ranks are threads) or cuda (ranks share a GPU, or have one each where a "
          "launcher starts a process for each)")
      ->required();
  command->add_option(
      "--predict", options->predict,
      "A hardware profile (a file, or the name of one of the suite's) whose prediction of each step "
      "stands beside the measured one");
  CLI::Option* replay =
      command
          ->add_option("--replay-rank", options->replay_rank,
                       "Run this rank of the world alone, with its real kernels; what it would exchange with "
                       "others takes the time of the links of --replay-cluster")
          ->check(CLI::Range(0, 1 << 20));
  CLI::Option* cluster =
      command->add_option("--replay-cluster", options->replay_cluster,
                          "A hardware profile (a file, or the name of one of the suite's)");
  replay->needs(cluster);
  cluster->needs(replay);
  replay->excludes("--predict");
  command->add_option("--json", options->json,
                      "Write the result record to this new file (- for standard output)");
  command->add_option("--trace", options->trace,
                      "Write a Perfetto/Chrome trace of the last schedule's last step to this new file");
  command
      ->add_option("--deadline", options->devices.deadline_s,
                   "Seconds without progress anywhere after which a run is given up")
      ->check(CLI::Range(0.01, 1e6))
      ->capture_default_str();
  command->add_option(
      "--nccl", options->devices.nccl,
      "GROUP:KEY=VALUE,…: how a group (tp, dp, model, p2p, all) uses NCCL: min_ctas, max_ctas, "
      "cluster, policy (standard, efficiency, zero), window_mib");
  command->add_flag("--time-kernels", options->devices.time_kernels,
                    "Take as many steps again in which each kernel is timed by itself (cuda alone)");
  command->add_flag("--graphs", options->devices.graphs,
                    "Replay the kernels of ops that come again as CUDA graphs (cuda alone)");
  command->add_option("--memory-limit", options->memory_limit_mib, "Most memory of a rank, MiB")
      ->check(CLI::Range(0.001, 1e9));
  command->callback([options, &invocation] { run_command(*options, invocation); });
}

}  // namespace stp
