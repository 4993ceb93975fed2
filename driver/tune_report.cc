#include "tune_report.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "baselines/registry.h"
#include "choices.h"
#include "output_folder.h"
#include "remedies.h"
#include "stp/base/data.h"
#include "stp/report/record.h"
#include "stp/schedule/csv.h"
#include "table.h"

namespace stp {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int kFewRows = 10;
constexpr double kUsualBand = 0.03;  // where the suite's results are not installed: its mark for throughputs

// "0.4 % slower, 8 GB more room, without split backwards".
std::string beside(const Tuned& one, const Tuned& other) {
  const auto and_so = [](std::string& text, const std::string& more) {
    text += (text.empty() ? "" : ", ") + more;
  };
  const auto only = [](const Tuned& has, const Tuned& lacks) {
    std::vector<std::string> words;
    for (const std::string& word : has.complicated)
      if (std::ranges::find(lacks.complicated, word) == lacks.complicated.end()) words.push_back(word);
    return joined(words);
  };
  std::string text;
  const double slower = one.outcome.step_s / other.outcome.step_s - 1,
               room = one.outcome.margin_gb - other.outcome.margin_gb;
  if (std::abs(slower) >= 5e-4)
    and_so(text, share_text(std::abs(slower)) + (slower > 0 ? " slower" : " faster"));
  if (std::abs(room) >= 0.5)
    and_so(text, fixed(std::abs(room), 0) + " GB " + (room > 0 ? "more" : "less") + " room");
  if (const std::string without = only(other, one); !without.empty()) and_so(text, "without " + without);
  if (const std::string with = only(one, other); !with.empty()) and_so(text, "with " + with);
  return text.empty() ? "the same" : text;
}

std::string why_first(const TuneResult& result, const ErrorBand& band) {
  const Tuned& first = result.best.front();
  const Tuned& fastest =
      *std::ranges::min_element(result.best, {}, [](const Tuned& one) { return one.outcome.step_s; });
  const StepOutcome& quick = fastest.outcome;
  std::string text = first.name() + " is ";
  if (first.outcome.step_s <= quick.step_s)
    text += "the fastest";
  else
    text += share_text(first.outcome.step_s / quick.step_s - 1) + " slower than the fastest, " +
            fastest.name() + ", and " + (first.fit != fastest.fit ? "surely fits" : "simpler or smaller") +
            ", with " + fixed(std::abs(first.outcome.margin_gb - quick.margin_gb), 0) + " GB " +
            (first.outcome.margin_gb >= quick.margin_gb ? "more" : "less") + " room";
  text += ". " + std::to_string(result.equals) + " configurations are within " + share_text(band.share) +
          " of the fastest and count as equal: those that surely fit first, then fewer options, then less "
          "memory. " +
          band.source + ".";
  if (first.fit == Fit::maybe)
    text += " Whether it fits is open: its margin of " + fixed(first.outcome.margin_gb, 1) +
            " GB is within what is uncertain of fixed memory.";
  return text;
}

std::string left_out(const TuneCounts& counts) {
  const auto said = [](size_t count, const std::string& what) {
    return count == 0 ? "" : "  " + std::to_string(count) + " " + what + "\n";
  };
  std::string text =
      std::to_string(counts.configurations) +
      " configurations: " + std::to_string(counts.simulated + counts.reused) + " simulated" +
      (counts.reused > 0 ? " (" + std::to_string(counts.reused) + " of them earlier)" : "") +
      "; left out:\n" + said(counts.unfit, "do not fit") +
      said(counts.bounded, "have a bound that the tenth best beats by more than that") +
      said(counts.needless, "save memory where less saving fits") +
      said(counts.same,
           "are the same as another: balanced layers that are even, one pipeline rank without braids");
  for (const auto& [reason, count] : counts.refused) text += said(count, "refused: " + reason);
  return text;
}

std::string of_memory(const TuneSpace& space) {
  const auto& hardware = *space.plans.front().hardware;
  const HardwareProfile& gpu = hardware.profile;
  const bool buffers = uses_transformer_engine(hardware.implementation);
  return "Memory counts weights, gradients, optimizer state, saved activations, " +
         std::string(buffers ? "Megatron-Core's buffers and working memory, " : "") + "and " +
         fixed(gpu.fixed_memory_bytes / 1e9, 1) + " GB (" + fixed(gpu.least_fixed_memory_bytes / 1e9, 1) +
         " to " + fixed(gpu.most_fixed_memory_bytes / 1e9, 1) +
         ") of context, communicators and workspaces. It leaves out fragmentation of the allocator" +
         (buffers ? "" : ", working memory of operations, buffers of collectives") + ", data and " +
         (space.framework.name[0] == 'p' ? "compiled graphs" : "checkpoints") + ".";
}

// Megatron-Core's arguments (megatron/training/arguments.py), one a line; "" if it cannot run the choice.
std::string megatron_flags(const Tuned& choice) {
  const Experiment& one = choice.experiment;
  const Strategy& strategy = one.strategy;
  const Framework& megatron = *std::ranges::find(frameworks(), std::string("megatron"), &Framework::name);
  const auto among = [](const std::vector<std::string>& words, const std::string& word) {
    return std::ranges::find(words, word) != words.end();
  };
  const std::string recompute = word_of(strategy.recompute, kRecomputes);
  if (!among(megatron.schedules, name_of(choice.choice())) || !among(megatron.recompute, recompute) ||
      !among(megatron.tp_overlap, word_of(strategy.tp_overlap, kTpOverlaps)) || strategy.offload > 0)
    return "";
  std::string text;
  const auto flag = [&](const std::string& name, const std::string& value = "") {
    text += "--" + name + (value.empty() ? "" : " " + value) + "\n";
  };
  const auto number = [&](const std::string& name, int value) { flag(name, std::to_string(value)); };
  number("tensor-model-parallel-size", strategy.tp);
  number("pipeline-model-parallel-size", strategy.pp);
  number("context-parallel-size", strategy.cp);
  number("micro-batch-size", one.microbatch_size);
  number("global-batch-size", one.microbatch_size * one.microbatches * strategy.dp);
  number("seq-length", one.hardware->seq);
  number("num-layers", one.hardware->model.layers);
  const auto [least, most] = std::ranges::minmax(one.layers_per_chunk);
  if (least != most) {
    std::string layout;
    for (size_t stage = 0; stage < one.layers_per_chunk.size(); ++stage)
      layout += (stage == 0 ? "E" : "|") + std::string(one.layers_per_chunk[stage], 't');
    flag("pipeline-model-parallel-layout", "\"" + layout + "L\"");
  } else if (one.chunks > 1) {
    number("num-virtual-stages-per-pipeline-rank", one.chunks);
  }
  if (strategy.sequence_parallel) flag("sequence-parallel");
  if (strategy.tp_overlap == TpOverlap::megatron) flag("tp-comm-overlap");
  if (strategy.zero) {
    flag("use-distributed-optimizer");
    flag("overlap-grad-reduce");
    flag("overlap-param-gather");
  }
  if (recompute == "full")
    flag("recompute-granularity", "full --recompute-method uniform --recompute-num-layers 1");
  if (recompute == "selective") flag("recompute-granularity", "selective --recompute-modules core_attn");
  if (recompute == "mlp") flag("recompute-granularity", "selective --recompute-modules mlp");
  return text;
}

json to_json(const Tuned& one, const Tuned& first) {
  const StepOutcome& outcome = one.outcome;
  return {{"name", one.name()},
          {"configuration", to_json(one.experiment)},
          {"step_time_s", outcome.step_s},
          {"tokens_per_s_per_gpu", outcome.tokens_per_s_per_gpu},
          {"mfu", outcome.mfu},
          {"peak_total_gb", outcome.peak_gb},
          {"memory_margin_gb", outcome.margin_gb},
          {"fits", to_string(one.fit)},
          {"exposed_communication_share", outcome.exposed_share},
          {"bubble_share", outcome.pp_share},
          {"lower_bound_s", outcome.lower_bound_s},
          {"options", one.complicated},
          {"beside_first", &one == &first ? "first" : beside(one, first)}};
}

}  // namespace

std::string Tuned::name() const {
  const Strategy& strategy = experiment.strategy;
  std::string text = name_of(choice());
  const auto add = [&](const char* what, int number, int usual) {
    if (number != usual) text += std::string(" ") + what + std::to_string(number);
  };
  add("v", experiment.chunks, find_generator(choice().name).chunks);
  add("tp", strategy.tp, 0);
  add("cp", strategy.cp, 1);
  add("pp", strategy.pp, 0);
  add("dp", strategy.dp, 0);
  add("mb", experiment.microbatch_size, 0);
  if (strategy.sequence_parallel) text += " sp";
  if (strategy.tp_overlap != TpOverlap::none)
    text += std::string(" overlap-") + word_of(strategy.tp_overlap, kTpOverlaps);
  if (strategy.recompute != Recompute{})
    text += std::string(" recompute-") + word_of(strategy.recompute, kRecomputes);
  if (strategy.offload > 0) text += shown(" offload-%g", strategy.offload);
  if (experiment.split == LayerSplit::balanced) text += " balanced";
  return text;
}

ErrorBand error_band(const std::string& cluster) {
  struct Errors {
    std::vector<double> means;
    int rows = 0;
  } own, all;
  const std::string summary = data_path("results/reference/simulated/summary.json");
  if (!fs::exists(summary)) return {kUsualBand, "The band is the suite's mark for throughputs"};
  const json experiments = read_json_file(summary).at("experiments");
  for (const json& experiment : experiments) {
    const json& error = experiment.at("throughput_error_mean");
    const std::string scenario = data_path("scenarios/" + experiment.at("id").get<std::string>() + ".json");
    if (!error.is_number() || !fs::exists(scenario)) continue;
    const int rows = experiment.at("rows").get<int>() - experiment.at("calibration_rows").get<int>();
    const bool here = read_json_file(scenario).value("cluster", "") == cluster;
    for (Errors* errors : {&all, here ? &own : nullptr}) {
      if (errors == nullptr) continue;
      errors->means.push_back(error.get<double>());
      errors->rows += rows;
    }
  }
  const bool few = own.rows < kFewRows;
  std::vector<double>& means = (few ? all : own).means;
  if (means.empty()) return {kUsualBand, "The band is the suite's mark for throughputs"};
  std::ranges::sort(means);
  return {means[(means.size() - 1) / 2],
          "The band is the median, over " + std::to_string(means.size()) +
              " experiments with published throughputs" + (few ? "" : " on " + cluster) +
              ", of their mean error" +
              (few ? "; " + cluster + " has " + std::to_string(own.rows) + " such rows of its own, too few"
                   : "")};
}

std::string tune_text(const TuneSpace& space, const TuneResult& result, const ErrorBand& band) {
  Table table({"configuration", "tokens/s/GPU", "MFU", "step, s", "peak, GB", "margin, GB", "fits", "exposed",
               "bubble", "over bound", "beside the first"});
  const Tuned& first = result.best.front();
  for (const Tuned& one : result.best) {
    const StepOutcome& outcome = one.outcome;
    table.add({one.name(), fixed(outcome.tokens_per_s_per_gpu, 0), share_text(outcome.mfu),
               fixed(outcome.step_s, 3), fixed(outcome.peak_gb, 1), fixed(outcome.margin_gb, 1),
               to_string(one.fit), share_text(outcome.exposed_share), share_text(outcome.pp_share),
               percent(outcome.step_s / outcome.lower_bound_s - 1),
               &one == &first ? "" : beside(one, first)});
  }
  const size_t width = Screen::of_output().width;
  return table.text() + wrapped(why_first(result, band), width) + "\n" +
         wrapped(left_out(result.counts), width) + wrapped(of_memory(space), width) + "\n";
}

json tune_json(const TuneSpace& space, const TuneResult& result, const ErrorBand& band,
               const Arguments& argv) {
  const auto& hardware = *space.plans.front().hardware;
  const TuneCounts& counts = result.counts;
  json value = origin(argv);
  value["schema_version"] = "1.0.0";
  value["model"] = hardware.model.name;
  value["cluster"] = hardware.profile.name;
  value["gpus"] = space.gpus;
  value["gpu_memory_gb"] = hardware.profile.memory_bytes / 1e9;
  value["framework"] = space.framework.name;
  value["band"] = {{"share", band.share}, {"source", band.source}};
  value["counts"] = {{"configurations", counts.configurations},
                     {"simulated", counts.simulated + counts.reused},
                     {"unfit", counts.unfit},
                     {"bounded", counts.bounded},
                     {"needless", counts.needless},
                     {"same", counts.same},
                     {"equal", result.equals},
                     {"refused", counts.refused}};
  value["memory"] = of_memory(space);
  value["reason"] = why_first(result, band);
  for (const Tuned& one : result.best) value["best"].push_back(to_json(one, result.best.front()));
  for (size_t i = 0; i < result.points.size(); ++i)
    value["points"].push_back({{"name", result.names[i]},
                               {"step_time_s", result.points[i].step_s},
                               {"tokens_per_s_per_gpu", result.points[i].tokens_per_s_per_gpu},
                               {"peak_total_gb", result.points[i].peak_gb}});
  return value;
}

void write_choice(const fs::path& folder, const Tuned& choice) {
  const Scenario scenario{.file = "",
                          .name = "choice",
                          .title = choice.name(),
                          .experiments = {choice.experiment},
                          .comparison = {}};
  write_new_file(folder / "choice.json", json_text(scenario.as_run(), 2) + "\n");
  const SimulatedRun run = run_simulated(choice.choice(), choice.experiment, "");
  // The order before it was lowered: braids and halves as the generator has them.
  if (const Schedule schedule = schedule_for(choice.choice(), choice.experiment, "");
      is_single_and_whole(schedule))
    write_new_file(folder / "choice.csv", to_csv(schedule, CsvForm::compute_only));
  write_trace(folder / "choice-trace.json", run);
  if (const std::string flags = megatron_flags(choice); !flags.empty())
    write_new_file(folder / "choice-megatron.txt", flags);
}

InputError nothing_fits(const TuneSpace& space, const TuneResult& result) {
  const Experiment& any = space.plans.front();
  if (!result.nearest)
    return {space.file, "",
            "all configurations are refused: " +
                (result.counts.refused.empty() ? "" : result.counts.refused.begin()->first),
            "leave an axis free"};
  std::string helps;
  try {
    for (const Remedy& remedy :
         remedies(run_simulated(result.nearest->choice(), result.nearest->experiment, "").result,
                  result.nearest->choice(), result.nearest->experiment, space.file))
      helps += (helps.empty() ? "" : ", ") + remedy.change + " saves " + fixed(remedy.saved_gb, 1) + " GB" +
               (remedy.fits ? " and fits" : "");
  } catch (const InputError&) {  // the nearest itself is refused
    helps = "";
  }
  return {space.file, "--gpus",
          any.hardware->model.name + " fits in none of " + std::to_string(result.counts.configurations) +
              " configurations on " + std::to_string(space.gpus) + " " + any.hardware->profile.name +
              "; the nearest, " + result.nearest->name() + ", lacks " +
              fixed(-result.nearest->outcome.margin_gb, 1) + " GB",
          "use more GPUs, or leave more axes free" + (helps.empty() ? "" : "; from the nearest: " + helps)};
}

}  // namespace stp
