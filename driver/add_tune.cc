// The options of `stp tune`.
#include <climits>
#include <memory>

#include "add_commands.h"
#include "manual.h"
#include "stp/base/error.h"

namespace stp {

void add_tune(CLI::App& app, const Arguments& argv) {
  auto options = std::make_shared<TuneOptions>();
  CLI::App* command = app.add_subcommand("tune", "Find the fastest split, schedule and options that fit");
  command->add_option(
      "SCENARIO", options->scenario,
      "A scenario file with what all configurations share, such as implementation; its values of "
      "the axes below take the place of flags");
  command->add_option("--model", options->model,
                      "A model: a file, Hugging Face's config.json, or the name of one of the suite's");
  command
      ->add_option("--cluster", options->cluster,
                   "A hardware profile (a file, or the name of one of the suite's)")
      ->type_name("PROFILE");
  command
      ->add_option(
          "--gpus", options->gpus,
          "GPUs, tp · cp · pp · dp; an axis takes values such as 4,8, and by default all that is possible")
      ->required()
      ->check(CLI::Range(1, 1 << 20));
  command->add_option("--global-batch", options->global_batch, "Samples of a step")
      ->check(within(1, INT_MAX));
  command->add_option("--seq", options->seq, "Tokens of a sample")->check(within(1, 1 << 24));
  command->add_option(
      "--runs-on", options->runs_on,
      "Only what a framework runs: megatron (Megatron-Core), pytorch (torch.distributed.pipelining's "
      "classes), pytorch-csv (its runtime, any order)");
  const auto axis = [&](const std::string& flag, auto& values, const std::string& what) {
    command->add_option(flag, values, what)->delimiter(',');
  };
  for (size_t i = 0; i < std::size(kAxes); ++i)
    axis(std::string("--") + kAxes[i].name, options->ranks[i], kAxes[i].searched);
  axis("--chunks", options->chunks, "Chunks a rank (default: up to 8)");
  axis("--microbatch-size", options->microbatch_size, "Samples of a microbatch (default: 1,2,4,8)");
  axis("--schedule", options->schedules,
       "Schedules (stp list schedules; default: all but slow ones, such as v-search)");
  axis("--recompute", options->recompute, "Recomputation: " + joined(kRecomputes, [](const auto& each) {
                                            return each.name;
                                          }) + " (default: these; block-1 stands for block-N), layernorm");
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
  add_set(command, options->set);
  command->footer(
      help_footer({"stp tune --model llama3-8b --cluster h100 --gpus 64 --global-batch 256 --seq 8192",
                   "stp tune --model config.json --cluster a100 --gpus 512 --global-batch 1024 --seq 4096 "
                   "--runs-on megatron --tp 4,8"}));
  command->callback([options, &argv] { tune_command(*options, argv); });
}

}  // namespace stp
