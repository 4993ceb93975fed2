#include <algorithm>
#include <climits>
#include <cmath>
#include <cstdio>

#include "choices.h"
#include "commands.h"
#include "experiment_memory.h"
#include "finished_rows.h"
#include "interrupt.h"
#include "megatron_flags.h"
#include "output_folder.h"
#include "remedies.h"
#include "run_python.h"
#include "stp/base/data.h"
#include "stp/base/json_input.h"
#include "stp/report/record.h"
#include "stp/schedule/csv.h"
#include "table.h"
#include "tuner.h"

namespace stp {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int kFewRows = 10;
constexpr double kUsualBand = 0.03;  // where the suite's results are not installed: its mark for throughputs

constexpr double kSeen = 5e-4;  // the least share that is not shown as 0.0 %

// The mean errors of a figure, sorted, in the experiments that published ones judge.
struct MeanErrors {
  std::vector<double> means;
  int rows = 0;

  [[nodiscard]] double median() const { return means.empty() ? 0 : means[means.size() / 2]; }
};

// The share within which two steps of a GPU count as equal, and where it is from, in words; the errors of
// peaks of memory.
struct ErrorBand {
  double share;
  std::string source;
  MeanErrors peaks;
};

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
  if (std::abs(slower) >= kSeen)
    and_so(text, share_text(std::abs(slower)) + (slower > 0 ? " slower" : " faster"));
  if (std::abs(room) >= 0.5)
    and_so(text, fixed(std::abs(room), 0) + " GB " + (room > 0 ? "more" : "less") + " room");
  if (const std::string without = only(other, one); !without.empty()) and_so(text, "without " + without);
  if (const std::string with = only(one, other); !with.empty()) and_so(text, "with " + with);
  return text.empty() ? "the same" : text;
}

// The fastest of the best of which `holds` is true; null: none.
const Tuned* fastest_of(const TuneResult& result, bool (*holds)(const Tuned&)) {
  const Tuned* fastest = nullptr;
  for (const Tuned& one : result.best)
    if (holds(one) && (fastest == nullptr || one.outcome.step_s < fastest->outcome.step_s)) fastest = &one;
  return fastest;
}

const Tuned& fastest_of(const TuneResult& result) {
  return *fastest_of(result, [](const Tuned&) { return true; });
}

// Why it may not fit.
std::string why_open(const Tuned& one, const MeanErrors& peaks) {
  if (one.fit != Fit::maybe) return "";
  const double margin = one.outcome.margin_gb;
  std::vector<std::string> of;
  if (fit_of(one.experiment.hardware->profile, margin) == Fit::maybe) of.emplace_back("fixed memory");
  if (margin < peaks.median() * one.outcome.peak_gb)
    of.push_back("peaks of memory, which differ from published ones by " + share_text(peaks.median()) +
                 " (median of the means of " + std::to_string(peaks.means.size()) + " experiments)");
  return " Whether it fits is open: its margin of " + fixed(margin, 1) +
         " GB is within what is uncertain of " + joined(of, {}, " and of ") + ".";
}

// What to take if the first choice turns out not to fit.
std::string fastest_sure(const TuneResult& result) {
  const Tuned& first = result.best.front();
  if (first.fit == Fit::yes) return "";
  const Tuned* sure = fastest_of(result, [](const Tuned& one) { return one.fit == Fit::yes; });
  if (sure == nullptr) return " None surely fits.";
  const double slower = sure->outcome.step_s / first.outcome.step_s - 1;
  return " The fastest that surely fits: " + sure->name() + ", " +
         (slower < kSeen ? "as fast" : share_text(slower) + " slower") + ", with " +
         fixed(sure->outcome.margin_gb, 0) + " GB free.";
}

std::string why_first(const TuneResult& result, const ErrorBand& band) {
  const Tuned& first = result.best.front();
  const Tuned& fastest = fastest_of(result);
  const StepOutcome &own = first.outcome, &quick = fastest.outcome;
  const double slower = own.step_s / quick.step_s - 1;
  std::string text = first.name() + " is ";
  if (own.step_s <= quick.step_s)
    text += "the fastest";
  else
    text += (slower < kSeen ? "as fast as" : share_text(slower) + " slower than") + " the fastest, " +
            fastest.name() + ", and " +
            (first.fit != fastest.fit                                ? "surely fits"
             : first.complicated.size() < fastest.complicated.size() ? "simpler"
                                                                     : "smaller") +
            ", with " + fixed(std::abs(own.margin_gb - quick.margin_gb), 0) + " GB " +
            (own.margin_gb >= quick.margin_gb ? "more" : "less") + " room";
  const auto beaten = std::ranges::count_if(result.points, [&](const StepOutcome& one) {
    return one.step_s < own.step_s && one.peak_gb < own.peak_gb;
  });
  if (beaten > 0)
    text += ". " + counted(beaten, "other") + (beaten == 1 ? " is" : " are") + " faster and smaller, but " +
            (beaten == 1 ? "uses" : "use") + " more options";
  const std::string within = " within " + share_text(band.share) + " of the fastest";
  text += result.equals == 1 ? ". None else is" + within + "."
                             : ". " + std::to_string(result.equals) + " configurations are" + within +
                                   " and count as equal: those that surely fit first, then fewer options, "
                                   "then less memory.";
  return text + " " + band.source + "." + why_open(first, band.peaks) + fastest_sure(result);
}

std::string left_out(const TuneCounts& counts) {
  const auto said = [](size_t count, const std::string& what) {
    return count == 0 ? "" : "  " + std::to_string(count) + " " + what + "\n";
  };
  std::string text =
      counted(counts.configurations, "configuration") + ": " +
      std::to_string(counts.simulated + counts.reused) + " simulated" +
      (counts.reused > 0 ? " (" + std::to_string(counts.reused) + " of them earlier)" : "") +
      "; left out:\n" + said(counts.unfit, "do not fit") +
      said(counts.bounded, "have a bound above the tenth best plus the band") +
      said(counts.needless, "recompute or offload where less of it surely fits, or saves as much") +
      said(counts.same,
           "equal another: balanced layers turned out even, or one pipeline rank without braids or with "
           "another schedule's order");
  for (const auto& [reason, count] : counts.refused.by_reason) text += said(count, "refused: " + reason);
  return text.ends_with("; left out:\n") ? text.replace(text.rfind(';'), std::string::npos, ".\n") : text;
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

// Of experiments on `cluster`, or of all if it is "". None if the suite's results are not installed.
MeanErrors errors_of(const std::string& figure, const std::string& cluster) {
  MeanErrors errors;
  const std::string summary = data_path("results/reference/simulated/summary.json");
  if (!fs::exists(summary)) return errors;
  const json experiments = read_json_file(summary).at("experiments");
  for (const json& experiment : experiments) {
    const json& error = experiment.value(figure + "_error_mean", json());
    const std::string scenario = data_path("scenarios/" + experiment.at("id").get<std::string>() + ".json");
    // Others vary the model, or repeat published rows of these.
    const bool judged = experiment.at("verdict") != "not testable here";
    if (!error.is_number() || !judged || !fs::exists(scenario)) continue;
    if (!cluster.empty() && read_json_file(scenario).value("cluster", "") != cluster) continue;
    errors.means.push_back(error.get<double>());
    errors.rows += experiment.at("rows").get<int>() - experiment.at("calibration_rows").get<int>();
  }
  std::ranges::sort(errors.means);
  return errors;
}

// Those on `cluster`, or of all experiments if it has few rows; and which these are, in words.
std::pair<MeanErrors, std::string> nearest_errors(const std::string& figure, const std::string& cluster) {
  MeanErrors errors = errors_of(figure, cluster);
  const int own = errors.rows;
  if (own < kFewRows) errors = errors_of(figure, "");
  const std::string words =
      "over " + counted(errors.means.size(), "experiment") + " that published throughputs judge" +
      (own < kFewRows ? " (" + cluster + " has " + std::to_string(own) + " such rows of its own, too few)"
                      : " on " + cluster);
  return {errors, words};
}

// An error that all configurations of a job share does not change which one is faster.
ErrorBand error_band(std::optional<double> given, const std::string& cluster) {
  const MeanErrors peaks = errors_of("memory", "");
  if (given) return {*given / 100, "The band is that of --band", peaks};
  const auto [errors, words] = nearest_errors("ratio", cluster);
  if (errors.means.empty()) return {kUsualBand, "The band is the suite's mark for throughputs", peaks};
  return {errors.median(),
          "The band is the median of mean errors in the ratio of two configurations of one job, " + words,
          peaks};
}

// What is known of the error that all configurations share.
std::string of_absolute_times(const NamedData& cluster, const std::string& name) {
  const auto [errors, words] = nearest_errors("throughput", name);
  std::string text = "Times are less certain than their ratios: ";
  if (errors.means.empty())
    text += "no published throughput is installed";
  else
    text += "throughputs differ from published ones by " + share_text(errors.means.front()) + " to " +
            share_text(errors.means.back()) + " on average, " + words;
  const json gemms = cluster.content->value("gemm_sustained", json::object());
  if (gemms.contains("range")) {
    const double value = gemms.at("value").get<double>();
    const auto change = [&](const char* end) {
      return percent(value / gemms.at("range").at(end).get<double>() - 1);
    };
    text +=
        "; times of GEMMs by " + change("to") + " to " + change("from") + " (the range of gemm_sustained)";
  }
  return text + ".";
}

// What --runs-on takes and runs it, in words.
std::string running(const Tuned& one) {
  std::vector<std::string> names;
  for (const Framework& each : frameworks())
    if (*each.name != '\0' && runs(each, one.experiment)) names.emplace_back(each.name);
  return joined(names);
}

std::string of_frameworks(const TuneResult& result) {
  const std::string names = running(result.best.front());
  if (!names.empty()) return "Frameworks that run the first choice: " + names + ".";
  const Tuned* fastest = fastest_of(result, [](const Tuned& one) { return !running(one).empty(); });
  const std::string none = "No framework of --runs-on runs the first choice";
  if (fastest == nullptr) return none + ", nor another of the table.";
  return none + "; the fastest of the table that one runs is " + fastest->name() + " (" + running(*fastest) +
         ").";
}

// What to know of the first choice and the fastest beside their figures.
std::vector<std::string> notes_on(const TuneSpace& space, const TuneResult& result) {
  const Tuned &first = result.best.front(), &fastest = fastest_of(result);
  const Experiment::Hardware& hardware = *first.experiment.hardware;
  std::vector<std::string> notes;
  if (*space.framework.name == '\0') notes.push_back(of_frameworks(result));
  notes.push_back(of_absolute_times(hardware.cluster_data, hardware.profile.name));
  if (const std::string note = best_rate_note(hardware.cluster_data); !note.empty()) notes.push_back(note);
  const int vocab = hardware.model_data.content->at("vocab_size").get<int>();
  if (hardware.model.vocab != vocab)
    notes.push_back("The first choice pads the vocabulary of " + std::to_string(vocab) + " to " +
                    std::to_string(hardware.model.vocab) + ", a multiple of " +
                    std::to_string(hardware.model.vocab_multiple) +
                    " · tp, as Megatron-LM does (--set model.make_vocab_size_divisible_by).");
  const auto add_ends = [&](const char* which, const Tuned& one) {
    for (const std::string& end : space.ends(one.experiment))
      notes.push_back(std::string(which) + " has " + end + ".");
  };
  add_ends("The first choice", first);
  if (&fastest != &first) add_ends("The fastest", fastest);
  return notes;
}

// The table of the best, why the first is first, and what was left out.
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
  return table.text() + wrapped(why_first(result, band) + "\n" + left_out(result.counts) + of_memory(space) +
                                "\n" + joined(notes_on(space, result), {}, "\n") + "\n");
}

// results/schema/tune.schema.json.
json tune_json(const TuneSpace& space, const TuneResult& result, const ErrorBand& band,
               const Arguments& argv) {
  const auto& hardware = *space.plans.front().hardware;
  const TuneCounts& counts = result.counts;
  json value = origin(argv);
  value["schema_version"] = "2.0.0";
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
                     {"refused", counts.refused.by_reason}};
  value["memory"] = of_memory(space);
  value["reason"] = why_first(result, band);
  value["notes"] = notes_on(space, result);
  for (const Tuned& one : result.best) value["best"].push_back(to_json(one, result.best.front()));
  for (size_t i = 0; i < result.points.size(); ++i)
    value["points"].push_back({{"name", result.names[i]},
                               {"step_time_s", result.points[i].step_s},
                               {"tokens_per_s_per_gpu", result.points[i].tokens_per_s_per_gpu},
                               {"peak_total_gb", result.points[i].peak_gb}});
  return value;
}

// Writes the first choice's scenario, its order as PyTorch's CSV, its timeline, and Megatron-Core's flags if
// it can run it.
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

// Why nothing fits, by how much, and what would help.
InputError nothing_fits(const TuneSpace& space, const TuneResult& result, double peak_error) {
  const Experiment& any = space.plans.front();
  if (!result.nearest) return result.counts.refused.all();
  const std::string helps =
      remedies_text(result.nearest->choice(), result.nearest->experiment, space.file, peak_error);
  return {space.file, "--gpus",
          any.hardware->model.name + " fits in none of " + std::to_string(result.counts.configurations) +
              " configurations on " + std::to_string(space.gpus) + " " + any.hardware->profile.name +
              "; the nearest, " + result.nearest->name() + ", lacks " +
              fixed(-result.nearest->outcome.margin_gb, 1) + " GB",
          std::string("use more GPUs") + (space.limited ? ", or leave more axes free" : "") +
              (helps.empty() ? "" : "; from the nearest: " + helps)};
}

}  // namespace

void tune_command(const TuneOptions& options, const Arguments& argv) {
  if (options.band && !(*options.band >= 0 && *options.band <= 100))
    throw InputError("", "--band", "is not from 0 to 100", "write a number of per cent");
  const TuneSpace space(options);
  const Experiment& any = space.plans.front();
  say_differences({.file = space.file, .name = "", .title = "", .experiments = {any}, .comparison = {}});
  const ErrorBand band = error_band(options.band, any.hardware->profile.name);
  // Two runs of one second have the same name.
  OutputFolder folder(options.out.empty() ? new_run_folder("tune-") : fs::path(options.out),
                      options.out.empty() ? OutputFolder::Taken::number : OutputFolder::Taken::refuse);
  FinishedRows rows(options.out);
  std::optional<TuneResult> result;
  try {
    result = tune(space, band.share, band.peaks.median(), options.exhaustive, rows);
  } catch (const Interrupted&) {
    const std::string go_on = rows.how_to_go_on();
    throw go_on.empty() ? Interrupted() : Interrupted(go_on);
  }
  if (result->best.empty()) throw rows.refused(nothing_fits(space, *result, band.peaks.median()));
  write_new_file(folder.path() / "tune.json", record_text(tune_json(space, *result, band, argv)));
  write_choice(folder.path(), result->best.front());
  const std::string missing =
      failure_of_python("plots/tune.py", {folder.path() / "tune.json", folder.path() / "tune.png"});
  std::printf("%s", tune_text(space, *result, band).c_str());
  folder.publish();
  rows.remove();
  const std::string files = folder.target().string() +
                            " has tune.json, its plot, and the first choice as scenario, timeline and, "
                            "where PyTorch's CSV can hold it, order.\n";
  std::printf("%s", wrapped(files).c_str());
  if (!missing.empty()) std::fprintf(stderr, "stp: no plot was drawn: %s\n", missing.c_str());
}

}  // namespace stp
