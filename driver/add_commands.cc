#include <algorithm>
#include <climits>
#include <cstdio>
#include <memory>

#include "add_commands.h"
#include "baselines/registry.h"
#include "manual.h"
#include "stp/base/json_input.h"
#include "stp/schedule/share_vocabulary.h"
#include "stp/version.h"

namespace stp {

namespace {

std::vector<std::string> names_of_commands(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands({})) names.push_back(command->get_name());
  return names;
}

CLI::Validator one_of(const std::vector<std::string>& words) {
  return {[words](const std::string& word) -> std::string {
            if (std::ranges::find(words, word) != words.end()) return "";
            return "there is no \"" + word + "\"; " + did_you_mean(word, words) + "there are " +
                   joined(words);
          },
          "{" + joined(words) + "}"};
}

CLI::Option* add_option(CLI::App* command, const GeneratorOption& option, GeneratorOptions& options) {
  std::string flag = std::string("--") + option.name, takers;
  std::ranges::replace(flag, '_', '-');
  for (const Generator* generator : generators())
    if (generator->*option.is_taken) takers += (takers.empty() ? "" : ", ") + std::string(generator->name);
  return command->add_option(flag, options.*option.value, std::string(option.help) + ", for " + takers)
      ->check(within(option.least, INT_MAX));
}

void add_reading(CLI::App* command, ScenarioOptions& reading) {
  add_set(command, reading.set);
  command->add_flag("--keep-going", reading.keep_going,
                    "Leave out invalid ones of several configurations, saying why, and run the others");
}

void add_scenario(CLI::App* command, std::string& scenario) {
  command->add_option("SCENARIO", scenario, "A scenario file, or the name of one of the suite's")->required();
}

void add_json(CLI::App* command, std::string& file, const char* what = "Write the result record") {
  command->add_option("--json", file, what + std::string(" to this new file (- for standard output)"));
}

void add_csv(CLI::App* command, std::string& csv) {
  command->add_option(
      "--csv", csv,
      "Write the rows to this new file (- for standard output): a column for each field of the "
      "record's rows that is no list");
}

CLI::Option* add_all_microbatches(CLI::App* command, bool& all) {
  return command->add_flag("--all-microbatches", all,
                           "Traces of long steps hold all microbatches, not the first and last alone");
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
  command->footer(help_footer({"stp reproduce", "stp reproduce llm-a800 table4 --out tables",
                               "stp reproduce llm-a800 --set cluster=h100 --no-plots"}));
  command->callback([options, &argv] { reproduce_command(*options, argv); });
}

void add_simulate(CLI::App& app, const Arguments& argv) {
  auto options = std::make_shared<SimulateOptions>();
  CLI::App* command = app.add_subcommand("simulate", "Simulate a scenario's programs in virtual time");
  add_scenario(command, options->scenario);
  add_json(command, options->json);
  add_csv(command, options->csv);
  add_reading(command, options->reading);
  command->footer(help_footer({"stp simulate llm-a800", "stp simulate my-scenario.json --csv rows.csv",
                               "stp simulate llm-a800 --set cluster=h100 --set parallel.tp=8 --keep-going"}));
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
  CLI::Option* cluster = command
                             ->add_option("--replay-cluster", options.replay_cluster,
                                          "A hardware profile (a file, or the name of one of the suite's)")
                             ->type_name("PROFILE");
  replay->needs(cluster);
  cluster->needs(replay);
  replay->excludes("--predict");
}

void add_devices(CLI::App* command, RunOptions& options) {
  command
      ->add_option("--deadline", options.devices.deadline_s,
                   "Seconds without progress of any rank after which a run fails")
      ->check(within(0.01, 1e6))
      ->capture_default_str();
  command->add_option(
      "--nccl", options.devices.nccl,
      "GROUP:KEY=VALUE,…: how a group (tp, cp, dp, model, vocabulary, embedding, pipelines, p2p, world, all) "
      "uses NCCL: min_ctas, max_ctas, cluster");
  command->add_flag("--time-kernels", options.devices.time_kernels,
                    "Run as many further steps, in which each kernel is timed separately (cuda only)");
  command->add_flag("--graphs", options.devices.graphs,
                    "Replay the kernels of repeated ops as CUDA graphs (cuda only)");
  command->add_option(
      "--inject", options.inject,
      "KIND:RANK:OP: make this rank fail where the action OP, such as F0.3, first begins: kill, "
      "stall, nan, alloc (no memory), disk (full, from then on); slow:RANK:OP:SECONDS delays it in "
      "every step");
  command->add_option("--memory-limit", options.memory_limit_mib, "Maximum memory of a rank, MiB")
      ->check(within(0.001, 1e9));
}

void add_checkpoints(CLI::App* command, CheckpointOptions& options) {
  const auto add = [&](const char* flag, auto& to, const char* what) {
    return command->add_option(flag, to, what)->excludes("--replay-rank");
  };
  CLI::Option* save = add("--save", options.save, "Write Hugging Face's checkpoints to this folder's step-N");
  add("--every", options.every, "Save every so many steps, too")->needs(save)->check(within(1, 1 << 20));
  add("--resume", options.resume, "Begin with this checkpoint, or with the last step-N of this folder");
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
          "The devices: cpu (ranks are threads), cuda (ranks share a GPU, or have one each where a "
          "launcher starts a process for each), or emulated (kernels of a scenario without a `run` only take "
          "the simulator's time)")
      ->required();
  command
      ->add_option("--predict", options->predict, "Also show this hardware profile's prediction of each step")
      ->type_name("PROFILE");
  add_replay(command, *options);
  add_checkpoints(command, options->devices.checkpoints);
  add_json(command, options->json);
  add_csv(command, options->csv);
  command->add_option("--trace", options->trace,
                      "Write a Perfetto/Chrome trace of the last schedule's last step to this new file");
  add_all_microbatches(command, options->all_microbatches)->needs("--trace");
  add_devices(command, *options);
  add_set(command, options->set);
  command->footer(help_footer({"stp run parity --backend cpu",
                               "stp run my-scenario.json --backend cuda --json steps.json",
                               "stp run timelines --backend emulated --set parallel.tp=2",
                               "mpirun -n 4 stp run train-2-gpus --backend cuda"}));
  command->callback([options, &argv, &status] { status = run_command(*options, argv); });
}

void add_configuration(CLI::App* command, int& configuration) {
  command->add_option(
      "--configuration", configuration,
      "Which configuration, counted from 1 in the order of `stp simulate` (default: the first)");
}

void add_schedule(CLI::App& app) {
  auto options = std::make_shared<ScheduleOptions>();
  CLI::App* command = app.add_subcommand("schedule", "Print a schedule: per rank, its blocks in order");
  CLI::Option* name = command->add_option("SCHEDULE", options->name, "The schedule's name");
  command->add_option("--pp", options->request.pp, "Pipeline ranks p")->required();
  command->add_option("--microbatches", options->request.microbatches, "Microbatches m of a step")
      ->required();
  CLI::Option* chunks =
      command
          ->add_option("--chunks", options->request.chunks, "Chunks a rank, v (default: the schedule's own)")
          ->check(CLI::Range(1, kMaxChunks));
  CLI::Option* costs = command
                           ->add_option("--costs", options->costs,
                                        "F,I,W,p2p of one chunk, for cost-aware generators (default 1,1,1,0)")
                           ->delimiter(',')
                           ->expected(4);
  std::vector<CLI::Option*> of_one{name, chunks, costs};
  for (const GeneratorOption& option : kGeneratorOptions)
    of_one.push_back(add_option(command, option, options->request.options));
  CLI::Option* vocabulary =
      command->add_option("--vocabulary", options->vocabulary, "Shared by all ranks: vocab-1 or vocab-2")
          ->check(one_of({method_name(Vocabulary::two_barriers), method_name(Vocabulary::one_barrier)}));
  CLI::Option* format = command
                            ->add_option("--format", options->format,
                                         "text, json, csv (PyTorch's compute_only), csv-comms (its "
                                         "compute_comms) or csv-comms-waits (the "
                                         "same with the WAIT actions that torch 2.15 requires)")
                            ->check(one_of({"text", "json", "csv", "csv-comms", "csv-comms-waits"}));
  CLI::Option* table = command->add_flag("--table", options->table,
                                         "Compare all schedules at this p and m, instead of printing one");
  of_one.insert(of_one.end(), {vocabulary, format});
  for (CLI::Option* option : of_one) table->excludes(option);
  command->footer(
      help_footer({"stp schedule stp --pp 4 --microbatches 8",
                   "stp schedule zb-v --pp 4 --microbatches 16 --costs 1,1.2,0.8,0.1 --format csv",
                   "stp schedule --table --pp 8 --microbatches 32", "stp list schedules"}));
  command->callback([options] { schedule_command(*options); });
}

void add_search(CLI::App& app) {
  auto options = std::make_shared<SearchOptions>();
  CLI::App* command = app.add_subcommand(
      "search",
      "Search a faster order for a configuration, from the suite's fastest that fits, and from the "
      "configuration's own if it names one schedule");
  add_scenario(command, options->scenario);
  add_configuration(command, options->configuration);
  command
      ->add_option(
          "--memory-limit", options->memory_limit,
          "Maximum of activations alive on a rank; schedule:NAME allows what that schedule holds (default: "
          "what the GPU's memory holds, if there is a GPU)")
      ->type_name("NUMBER|schedule:NAME");
  command->add_option("--seed", options->seed, "Random seed; it and --moves decide the result")
      ->check(within(0, 1e18))
      ->capture_default_str();
  command
      ->add_option("--moves", options->moves,
                   "Orders to time (default: one to two minutes' worth; Ctrl-C keeps the best so far)")
      ->check(within(1, 1e12));
  command->add_option("--out", options->out, "The schedule file, JSON; - for standard output")->required();
  add_set(command, options->set);
  command->footer(
      help_footer({"stp search llm-a800 --set microbatches=8 --memory-limit schedule:stp --out fast.json"}));
  command->callback([options] { search_command(*options); });
}

void add_validate(CLI::App& app) {
  auto file = std::make_shared<std::string>();
  CLI::App* command =
      app.add_subcommand("validate", "Check a schedule file: complete, ordered, free of deadlock");
  command
      ->add_option(
          "FILE", *file,
          "A schedule as `stp schedule` prints it: text, JSON or CSV (PyTorch's, either form); - for "
          "standard input")
      ->required();
  command->footer(
      "A CSV has a line per rank, and of each action stage, pass (F, B, I, W) and microbatch:\n"
      "  0F0,0F1,0B0,0B1\n"
      "  1F0,1B0,1F1,1B1\n\n" +
      help_footer(
          {"stp validate my-schedule.csv", "stp schedule stp --pp 4 --microbatches 8 | stp validate -"}));
  command->callback([file] { validate_command(*file); });
}

void add_model(CLI::App& app) {
  auto options = std::make_shared<ImportOptions>();
  CLI::App* model = app.add_subcommand("model", "Make model files");
  model->require_subcommand(1);
  CLI::App* command = model->add_subcommand(
      "import", "Make a model file of Hugging Face's config.json, and say what was taken");
  command->add_option("CONFIG", options->config, "A config.json, or its folder")->required();
  command->add_option("--name", options->name,
                      "The model's name (default: _name_or_path, or the folder's name)");
  command->add_option("--out", options->out, "Write the model file to this new file (- for standard output)")
      ->capture_default_str();
  model->footer(help_footer({"stp model import --help"}));
  command->footer(help_footer({"stp model import Llama-3-8B/config.json --out llama-3-8b.json"}));
  command->callback([options] { import_command(*options); });
}

void add_trace(CLI::App& app) {
  auto options = std::make_shared<TraceOptions>();
  CLI::App* command =
      app.add_subcommand("trace", "Draw a configuration's timelines and write its Chrome/Perfetto traces");
  add_scenario(command, options->scenario);
  command
      ->add_option("--schedule", options->schedule,
                   "Only this schedule of the scenario (a file by its name without its ending)")
      ->type_name("SCHEDULE");
  add_configuration(command, options->configuration);
  command->add_option("--out", options->out, "A folder that does not exist yet")->required();
  add_all_microbatches(command, options->all_microbatches);
  add_set(command, options->set);
  command->footer(help_footer({"stp trace llm-a800 --schedule stp --out traces",
                               "stp trace llm-a800 --configuration 3 --out third"}));
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
  profiles->type_name("PROFILE")->expected(0, -1);
  command
      ->add_option("--scenarios", options->profiles.scenarios,
                   "With --profiles: whose configurations (default: the paper's, llm-a800 and llm-h20)")
      ->type_name("SCENARIO")
      ->needs(profiles);
  command
      ->add_option("--schedules", options->profiles.schedules,
                   "With --profiles: which schedules (default: those of the scenarios)")
      ->type_name("SCHEDULE")
      ->needs(profiles);
  add_set(command, options->profiles.set)
      ->needs(profiles)
      ->description(
          "KEY=VALUE: with --profiles, a field of the scenarios or their models' files "
          "(implementation=megatron-te); cluster.KEY=VALUE changes a copy of the last profile, one more "
          "machine");
  command
      ->add_flag(
          "--details", options->details,
          "With --profiles: also the shapes' GEMMs, and which property makes which part of a difference")
      ->needs(profiles);
  command
      ->add_option("--least-difference", options->least_difference,
                   "Differences of median times below this percentage count as the same")
      ->check(within(0.0, 1000.0))
      ->capture_default_str();
  add_json(command, options->json, "Write the comparison");
  command->add_option("--plot", options->plot, "Draw it into this new file, .png or .svg");
  command->footer(help_footer(
      {"stp compare before.json after.json", "stp compare --profiles a800 h100 --plot machines.svg",
       "stp compare --profiles a800 --set cluster.name=mine cluster.peak_tflops=600 cluster.memory_gb=128"}));
  command->callback([options, &argv, &status, profiles] {
    options->machines = profiles->count() > 0;
    std::erase(options->profiles.profiles, "");  // CLI11 makes "" from the flag alone
    status = compare_command(*options, argv);
  });
}

void add_microbench(CLI::App& app, int& status) {
  auto options = std::make_shared<MicrobenchOptions>();
  CLI::App* command = app.add_subcommand(
      "microbench", "Measure this machine: GEMMs, memory, collectives, and how well they overlap");
  command->add_option("--out", options->out,
                      "A folder that does not exist yet (default: a new one under results/runs)");
  command->allow_extras();
  command->footer(
      "Other flags go to bin/microbench, beside stp, whose --help has them all (default: --quick):\n"
      "  --quick                    " +
      std::string(kQuickTime) +
      "\n"
      "  --repetitions 30           samples of every benchmark\n"
      "  --backend cuda             a GPU; where there is only one, --peers PROFILE emulates its peers\n"
      "  --models llm-12.1b         whose shapes\n"
      "  --ranks 2 4 8              sizes of groups\n"
      "  --benchmark_filter=REGEX   only some, ^overlap/ say; makes no profile\n\n" +
      help_footer({"stp microbench", "stp microbench --out here --quick --ranks 2 --repetitions 30",
                   "stp compare here/microbench.json there/microbench.json"}));
  command->callback([options, command, &status] {
    options->flags = command->remaining();
    status = microbench_command(*options);
  });
}

void add_list(CLI::App& app) {
  auto kind = std::make_shared<std::string>();
  auto names_only = std::make_shared<bool>(false);
  CLI::App* command = app.add_subcommand("list", "List the suite's scenarios, models, profiles or schedules");
  command->add_option("KIND", *kind, joined(listed_kinds()) + " (default: these names)")
      ->check(one_of(listed_kinds()));
  command->add_flag("--names", *names_only, "Print the names alone, one a line");
  command->footer(help_footer({"stp list scenarios", "stp list profiles --names"}));
  command->callback([kind, names_only] { list_command(*kind, *names_only); });
}

void add_doctor(CLI::App& app, const Arguments& argv, int& status) {
  app.add_subcommand("doctor",
                     "Say what works on this machine: devices, libraries, kernels. Ends with 1 if a device "
                     "that is here cannot be used")
      ->footer(help_footer({"stp doctor"}))
      ->callback([&argv, &status] { status = doctor_command(argv) ? 0 : 1; });
}

// Commands about commands.
void add_manual(CLI::App& app) {
  auto of = std::make_shared<std::vector<std::string>>();
  CLI::App* help = app.add_subcommand("help", "Print the help of a command");
  help->add_option("COMMAND", *of, "The command, such as simulate or model import (default: stp itself)");
  help->footer(help_footer({"stp help simulate", "stp help model import"}));
  help->callback([&app, of] {
    const CLI::App* command = &app;
    std::string path;  // to the command
    for (const std::string& word : *of) {
      path += (path.empty() ? "" : " ") + (command == &app ? "stp" : command->get_name());
      const auto commands = names_of_commands(*command);
      if (std::ranges::find(commands, word) == commands.end())
        throw InputError("", "COMMAND", unknown_command(*command, word), "");
      command = command->get_subcommand(word);
    }
    // app.help() would give that of the command chosen, which is this one.
    std::fputs((command == &app ? app.get_formatter()->make_help(&app, "stp", CLI::AppFormatMode::Normal)
                                : command->help(path))
                   .c_str(),
               stdout);
  });
  app.add_subcommand("man", "Print the man page, in roff")
      ->footer(help_footer({"stp man > stp.1", "man ./stp.1"}))
      ->callback([&app] { std::fputs(man_page(app, STP_VERSION).c_str(), stdout); });
  auto shell = std::make_shared<std::string>();
  CLI::App* complete = app.add_subcommand("completion", "Print a script that completes commands in a shell");
  complete->add_option("SHELL", *shell, joined(completed_shells()))
      ->required()
      ->check(one_of(completed_shells()));
  complete->footer(help_footer(
      {"source <(stp completion bash)", "stp completion fish > ~/.config/fish/completions/stp.fish"}));
  complete->callback([&app, shell] { std::fputs(completion(app, *shell).c_str(), stdout); });
}

}  // namespace

std::string unknown_command(const CLI::App& app, const std::string& word) {
  const std::vector<std::string> names = names_of_commands(app);
  return "there is no command \"" + word + "\"; " + did_you_mean(word, names) + "there are " + joined(names);
}

void add_commands(CLI::App& app, const Arguments& argv, int& status) {
  add_reproduce(app, argv);
  add_simulate(app, argv);
  add_tune(app, argv);
  add_run(app, argv, status);
  add_schedule(app);
  add_search(app);
  add_validate(app);
  add_trace(app);
  add_model(app);
  add_compare(app, argv, status);
  add_microbench(app, status);
  add_list(app);
  add_doctor(app, argv, status);
  add_manual(app);
}

}  // namespace stp
