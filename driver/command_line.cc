#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <stdexcept>

#include "baselines/registry.h"
#include "commands.h"
#include "stp/backends/backends.h"
#include "stp/base/json_input.h"
#include "stp/version.h"

namespace stp {
namespace {

void add_set(CLI::App* command, std::vector<std::string>& set) {
  command
      ->add_option(
          "--set", set,
          "KEY=VALUE: in place of what files say, a field of the scenario (parallel.tp=8), or of its "
          "cluster's or model's file (cluster.peak_tflops=400, model.num_hidden_layers=48)")
      ->type_name("KEY=VALUE");
}

void add_reading(CLI::App* command, ScenarioOptions& reading) {
  add_set(command, reading.set);
  command->add_flag("--keep-going", reading.keep_going,
                    "Leave out invalid ones of several configurations, saying why, and run the others");
}

void add_scenario(CLI::App* command, std::string& scenario) {
  command->add_option("SCENARIO", scenario, "A scenario file, or the name of one of the suite's")->required();
}

void add_json(CLI::App* command, std::string& json, const char* what = "Write the result record") {
  command->add_option("--json", json, what + std::string(" to this new file (- for standard output)"));
}

void add_reproduce(CLI::App& app, const Arguments& argv) {
  auto options = std::make_shared<ReproduceOptions>();
  CLI::App* command =
      app.add_subcommand("reproduce", "Run experiments of the paper and compare them with its figures");
  command->add_option("SCENARIO", options->scenarios,
                      "Scenarios by name or file (default: all of the suite)");
  command->add_option("--out", options->out,
                      "A folder that does not exist yet (default: a new one under results/runs)");
  command->add_flag("--no-plots", options->no_plots,
                    "Write only JSON files (records and traces): no plots, timelines or report.html");
  add_reading(command, options->reading);
  command->callback([options, &argv] { reproduce_command(*options, argv); });
}

void add_simulate(CLI::App& app, const Arguments& argv) {
  auto options = std::make_shared<SimulateOptions>();
  CLI::App* command = app.add_subcommand("simulate", "Simulate a scenario's programs in virtual time");
  add_scenario(command, options->scenario);
  add_json(command, options->json);
  add_reading(command, options->reading);
  command->callback([options, &argv] { simulate_command(*options, argv); });
}

void add_replay(CLI::App* command, RunOptions& options) {
  CLI::Option* replay =
      command
          ->add_option(
              "--replay-rank", options.replay_rank,
              "Run only this rank of the world, with its real kernels; its communication is over emulated "
              "links of --replay-cluster")
          ->check(CLI::Range(0, 1 << 20));
  CLI::Option* cluster =
      command->add_option("--replay-cluster", options.replay_cluster,
                          "A hardware profile (a file, or the name of one of the suite's)");
  replay->needs(cluster);
  cluster->needs(replay);
  command
      ->add_option(
          "--late-peers", options.late_peers_us,
          "Microseconds by which other stages send later than the replayed rank could receive; until "
          "then a receive holds multiprocessors, as it does over NCCL")
      ->needs(replay)
      ->check(CLI::Range(1.0, 1e6));
  replay->excludes("--predict");
}

void add_devices(CLI::App* command, RunOptions& options) {
  command
      ->add_option("--deadline", options.devices.deadline_s,
                   "Seconds without progress of any rank after which a run fails")
      ->check(CLI::Range(0.01, 1e6))
      ->capture_default_str();
  command->add_option(
      "--nccl", options.devices.nccl,
      "GROUP:KEY=VALUE,…: how a group (tp, dp, model, p2p, all) uses NCCL: min_ctas, max_ctas, "
      "cluster, policy (standard, efficiency, zero), window_mib");
  command->add_flag("--time-kernels", options.devices.time_kernels,
                    "Run as many further steps, in which each kernel is timed separately (cuda only)");
  command->add_flag("--graphs", options.devices.graphs,
                    "Replay the kernels of repeated ops as CUDA graphs (cuda only)");
  command
      ->add_option("--gemm-multiprocessors", options.devices.gemm_multiprocessors,
                   "Choose GEMM kernels for this many of the GPU's multiprocessors; the others are left to "
                   "communication (cuda only)")
      ->check(CLI::Range(1, 1 << 16));
  command
      ->add_option("--hold-compute", options.devices.hold_compute_us,
                   "Microseconds by which the compute op that follows a collective is delayed, so that the "
                   "collective gets multiprocessors first (cuda only)")
      ->check(CLI::Range(1.0, 1000.0));
  command->add_option("--memory-limit", options.memory_limit_mib, "Maximum memory of a rank, MiB")
      ->check(CLI::Range(0.001, 1e9));
}

void add_run(CLI::App& app, const Arguments& argv, int& status) {
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
      "A hardware profile (a file, or the name of one of the suite's): also shows its prediction of "
      "each step");
  add_replay(command, *options);
  add_json(command, options->json);
  command->add_option("--trace", options->trace,
                      "Write a Perfetto/Chrome trace of the last schedule's last step to this new file");
  add_devices(command, *options);
  add_set(command, options->set);
  command->callback([options, &argv, &status] { status = run_command(*options, argv); });
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
                   "Maximum of activations alive on a rank, for cost-aware generators")
      ->check(CLI::PositiveNumber);
  CLI::Option* format = command
                            ->add_option("--format", options->format,
                                         "text, json, csv (PyTorch's compute_only), csv-comms (its "
                                         "compute_comms) or csv-comms-waits (the "
                                         "same with the WAIT actions that torch 2.15 requires)")
                            ->check(CLI::IsMember({"text", "json", "csv", "csv-comms", "csv-comms-waits"}));
  command
      ->add_flag("--table", options->table, "Compare all schedules at this p and m, instead of printing one")
      ->excludes(name)
      ->excludes(format);
  command->callback([options] { schedule_command(*options); });
}

void add_validate(CLI::App& app) {
  auto file = std::make_shared<std::string>();
  CLI::App* command =
      app.add_subcommand("validate", "Check a schedule file: complete, ordered, free of deadlock");
  command
      ->add_option(
          "FILE", *file,
          "A schedule as `stp schedule` prints it: .txt (text), .json or .csv (PyTorch's, either form)")
      ->required();
  command->callback([file] { validate_command(*file); });
}

void add_trace(CLI::App& app) {
  auto options = std::make_shared<TraceOptions>();
  CLI::App* command =
      app.add_subcommand("trace", "Draw a configuration's timelines and write its Chrome/Perfetto traces");
  add_scenario(command, options->scenario);
  command->add_option("--schedule", options->schedule,
                      "Only this schedule of the scenario (a file by its name without its ending)");
  command->add_option(
      "--configuration", options->configuration,
      "Which configuration, counted from 1 in the order of `stp simulate` (default: the first)");
  command->add_option("--out", options->out, "A folder that does not exist yet")->required();
  add_set(command, options->set);
  command->callback([options] { trace_command(*options); });
}
void add_compare(CLI::App& app, const Arguments& argv, int& status) {
  auto options = std::make_shared<CompareOptions>();
  CLI::App* command = app.add_subcommand("compare", "Compare results, benchmarks or machines");
  command->add_option("FILE", options->files,
                      "Two or more result records, or files of Google Benchmark (--benchmark_format=json)");
  auto* profiles =
      command->add_option("--profiles", options->profiles.profiles,
                          "Instead of files: hardware profiles by name or file (default: all of the suite)");
  profiles->expected(0, -1);
  command
      ->add_option("--scenarios", options->profiles.scenarios,
                   "With --profiles: whose configurations (default: the paper's, llm-a800 and llm-h20)")
      ->needs(profiles);
  command
      ->add_option("--schedules", options->profiles.schedules,
                   "With --profiles: which schedules (default: those of the scenarios)")
      ->needs(profiles);
  command
      ->add_flag("--attribute-all", options->profiles.attribute_all,
                 "With --profiles: attribute differences to properties in every configuration, not only in "
                 "those that all scenarios share")
      ->needs(profiles);
  command
      ->add_option("--least-difference", options->least_difference,
                   "Differences of median times below this percentage count as the same")
      ->check(CLI::Range(0.0, 1000.0))
      ->capture_default_str();
  add_json(command, options->json, "Write the comparison");
  command->add_option("--plot", options->plot, "Draw it into this new file, .png or .svg");
  command->callback([options, &argv, &status, profiles] {
    options->machines = profiles->count() > 0;
    std::erase(options->profiles.profiles, "");  // CLI11 makes "" from the flag alone
    status = compare_command(*options, argv);
  });
}

std::string version_text() {
  std::string libraries;
  for (const BuiltIn& backend : built_in_backends()) {
    const std::string of_this = joined(backend.libraries, [](const auto& library) {
      return library.first + (library.second ? " built in" : " not built in");
    });
    if (!of_this.empty()) libraries += "\n" + backend.name + ": " + of_this;
  }
  return "stp " STP_VERSION " (" STP_GIT_REVISION ")\nevidence: simulated, measured, replayed\nbackends: " +
         joined(built_in_backends(), &BuiltIn::name) + libraries;
}

// Reports a first word that is not a command; CLI11 would only say that a command is required.
bool tell_unknown_command(const CLI::App& app, const Arguments& argv) {
  if (argv.size() < 2 || argv[1].starts_with('-') || !app.get_subcommands().empty()) return false;
  std::vector<std::string> commands;
  for (const CLI::App* command : app.get_subcommands({})) commands.push_back(command->get_name());
  const std::string& word = argv[1];
  const std::string guess = nearest(word, commands);
  std::fprintf(stderr, "stp: there is no command \"%s\"; %s\n", word.c_str(),
               guess.empty() ? "stp --help lists them" : ("did you mean " + guess + "?").c_str());
  return true;
}

}  // namespace

int run_command_line(int argc, char** argv) {
  const Arguments words(argv, argv + argc);
  CLI::App app{"STP: tensor and pipeline parallel schedules, simulated, run and measured"};
  app.set_version_flag("--version", version_text());
  app.require_subcommand(1);
  app.failure_message([](const CLI::App* of, const CLI::Error& error) {
    std::string command = "stp";
    for (const CLI::App* chosen : of->get_subcommands()) command += " " + chosen->get_name();
    return "stp: " + std::string(error.what()) + "; " + command + " --help lists what there is\n";
  });
  add_reproduce(app, words);
  add_simulate(app, words);
  int status = 0;
  add_run(app, words, status);
  add_schedule(app);
  add_validate(app);
  add_trace(app);
  add_compare(app, words, status);
  try {
    app.parse(argc, argv);
    if (status != 0) return status;
    if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)
      throw std::runtime_error("standard output could not be written");
    return 0;
  } catch (const CLI::ParseError& error) {
    const bool one_required = dynamic_cast<const CLI::RequiredError*>(&error) != nullptr;
    if (one_required && tell_unknown_command(app, words)) return 2;
    return app.exit(error) == 0 ? 0 : 2;
  }
}

}  // namespace stp
