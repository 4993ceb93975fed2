#include <CLI/CLI.hpp>
#include <chrono>
#include <climits>
#include <cstdio>
#include <fstream>

#include "add_commands.h"
#include "commands.h"
#include "interrupt.h"
#include "manual.h"
#include "output_folder.h"
#include "run_python.h"
#include "stp/base/json_input.h"
#include "stp/report/record.h"
#include "stp/version.h"
#include "table.h"
#include "tune_report.h"

namespace stp {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kFinished = "finished.json";  // of an interrupted search

// What the finished configurations depend on.
json question_of(const TuneSpace& space) {
  return {{"revision", STP_VERSION " " STP_GIT_REVISION}, {"of", space.shared()}};
}

// What a search has finished, in a folder that an interrupted or killed one leaves behind.
class Kept {
 public:
  Kept(fs::path folder, json question) : folder_(std::move(folder)), question_(std::move(question)) {
    if (!fs::exists(folder_ / kFinished)) return;
    const json kept = read_json_file(folder_ / kFinished);
    if (kept.value("question", json()) == question_)
      kept.at("finished").get_to(finished), written_ = finished.size();
    else
      std::fprintf(stderr, "stp: %s is of another question or version, and is not used\n", folder_.c_str());
  }

  Finished finished;

  void write() {
    written_ = finished.size();
    last_ = Clock::now();
    const fs::path beside = folder_ / "partial.json";
    fs::create_directories(folder_);
    fs::remove(beside);
    write_new_file(beside, json_text({{"question", question_}, {"finished", finished}}));
    fs::rename(beside, folder_ / kFinished);
  }
  void write_sometimes() {
    if (finished.size() > written_ && Clock::now() - last_ > std::chrono::seconds(1)) write();
  }
  [[noreturn]] void interrupt() {
    if (finished.empty()) throw Interrupted();
    write();
    throw Interrupted("what was finished is in " + folder_.string());
  }
  void remove() { fs::remove_all(folder_); }

 private:
  using Clock = std::chrono::steady_clock;
  fs::path folder_;
  json question_;
  size_t written_ = 0;
  Clock::time_point last_;
};

}  // namespace

void tune_command(const TuneOptions& options, const Arguments& argv) {
  if (options.band >= 0 && !(options.band <= 100))
    throw InputError("", "--band", "is not from 0 to 100", "write a number of per cent");
  const TuneSpace space(options);
  const NamedData& profile = space.plans.front().hardware->cluster_data;
  say_overridden(*profile.content, profile.path);
  const ErrorBand band = options.band >= 0 ? ErrorBand{options.band / 100, "The band is that of --band"}
                                           : error_band(profile.name);
  OutputFolder folder(options.out.empty() ? new_run_folder("tune-") : fs::path(options.out));
  Kept kept(folder.target().string() + "-interrupted", question_of(space));
  std::optional<TuneResult> result;
  try {
    result = tune(space, band.share, options.exhaustive, kept.finished, [&] { kept.write_sometimes(); });
  } catch (const Interrupted&) {
    kept.interrupt();
  }
  if (result->best.empty()) throw nothing_fits(space, *result);
  write_new_file(folder.path() / "tune.json", record_text(tune_json(space, *result, band, argv)));
  write_choice(folder.path(), result->best.front());
  const std::string missing =
      failure_of_python("plots/tune.py", {folder.path() / "tune.json", folder.path() / "tune.png"});
  std::printf("%s", tune_text(space, *result, band).c_str());
  folder.publish();
  kept.remove();
  const std::string files = folder.target().string() +
                            " has tune.json, its plot, and the first choice as scenario, timeline and, "
                            "where PyTorch's CSV can hold it, order.\n";
  std::printf("%s", wrapped(files, Screen::of_output().width).c_str());
  if (!missing.empty()) std::fprintf(stderr, "stp: no plot was drawn: %s\n", missing.c_str());
}

void add_tune(CLI::App& app, const Arguments& argv) {
  auto options = std::make_shared<TuneOptions>();
  CLI::App* command = app.add_subcommand("tune", "Find the fastest split, schedule and options that fit");
  command->add_option(
      "SCENARIO", options->scenario,
      "A scenario file with what all configurations share, such as implementation; its values of "
      "the axes below are fixed");
  command->add_option("--model", options->model,
                      "A model: a file, Hugging Face's config.json, or the name of one of the suite's");
  command
      ->add_option("--cluster", options->cluster,
                   "A hardware profile (a file, or the name of one of the suite's)")
      ->type_name("PROFILE");
  command->add_option("--gpus", options->gpus, "GPUs, tp · cp · pp · dp")
      ->required()
      ->check(CLI::Range(1, 1 << 20));
  command->add_option("--global-batch", options->global_batch, "Samples of a step")
      ->check(within(1, INT_MAX));
  command->add_option("--seq", options->seq, "Tokens of a sample")->check(within(1, 1 << 24));
  command->add_option(
      "--runs-on", options->runs_on,
      "Only what a framework runs: megatron (Megatron-Core), pytorch (torch.distributed.pipelining's "
      "classes), pytorch-csv (its runtime, any order)");
  const auto axis = [&](const char* flag, auto& values, const char* what) {
    command->add_option(flag, values, what)->delimiter(',');
  };
  axis("--tp", options->tp,
       "Tensor-parallel ranks, such as 4,8 (default of each axis: all that is possible; tp: within a node)");
  axis("--cp", options->cp, "Context-parallel ranks (default: at least 1024 tokens a rank)");
  axis("--pp", options->pp, "Pipeline ranks");
  axis("--dp", options->dp, "Data-parallel replicas");
  axis("--chunks", options->chunks, "Chunks a rank (default: up to 8)");
  axis("--microbatch-size", options->microbatch_size, "Samples of a microbatch (default: 1,2,4,8)");
  axis("--schedule", options->schedules,
       "Schedules (stp list schedules; default: all but slow ones, such as v-search)");
  axis("--recompute", options->recompute,
       "Recomputation: none, selective, full, mlp, attn+mlp, attn+mlp+norm");
  axis("--offload", options->offload, "Offload ratios (default: 0,0.5,1)");
  axis("--sequence-parallel", options->sequence_parallel, "Sequence parallelism: on, off");
  axis("--tp-overlap", options->tp_overlap,
       "What hides TP collectives: none, megatron, domino, flux (default: not flux)");
  axis("--layers", options->layers, "Layers per chunk: even, balanced");
  command->add_option("--band", options->band,
                      "Per cent within which steps count as equal (default: the model's error on this GPU)");
  command->add_option("--out", options->out,
                      "A folder that does not exist yet (default: a new one under results/runs)");
  command->add_flag("--exhaustive", options->exhaustive,
                    "Simulate everything: no bound, no estimate of memory");
  command
      ->add_option("--set", options->set,
                   "KEY=VALUE: a field of all configurations, of the cluster's or the model's file")
      ->type_name("KEY=VALUE");
  command->footer(
      help_footer({"stp tune --model llama3-8b --cluster h100 --gpus 64 --global-batch 256 --seq 8192",
                   "stp tune --model config.json --cluster a100 --gpus 512 --global-batch 1024 --seq 4096 "
                   "--runs-on megatron --tp 4,8"}));
  command->callback([options, &argv] { tune_command(*options, argv); });
}

}  // namespace stp
