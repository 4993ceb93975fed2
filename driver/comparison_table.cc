#include "comparison_table.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "stp/base/json_input.h"
#include "table.h"

namespace stp {
namespace {

using nlohmann::json;

std::optional<double> number(const json& holder, const char* key) {
  if (!holder.is_object() || !holder.contains(key) || !holder.at(key).is_number()) return std::nullopt;
  return holder.at(key).get<double>();
}

std::string text(const json& value) {
  if (value.is_null()) return "–";
  return value.is_string() ? value.get<std::string>() : json_text(value);
}

// How an experiment met its criteria. A claim requires more (docs/claims.md), so no verdict is shown here.
std::string criteria_text(const json& line) {
  const std::string verdict = text(line.at("verdict"));
  return verdict == "reproduced" ? "met" : verdict == "deviates" ? "missed" : verdict;
}

std::string percentage(std::optional<double> value, int decimals) {
  return value ? fixed(*value * 100, decimals) : "–";
}

// A schedule's name after the configuration's name, with the options that are not defaults.
std::string schedule_name(const json& row) {
  std::string name = text(row.at("schedule"));
  if (row.at("name").is_string()) name = text(row.at("name")) + ": " + name;
  if (row.at("braid") != "static") name += ", " + text(row.at("braid")) + " braids";
  if (row.value("merge_backward", false)) name += ", merged";
  return row.at("contention") == false ? name + ", no contention" : name;
}

// Of all tokens of a sample, with those of images.
std::optional<double> tokens_per_s_per_gpu(const json& row) {
  const auto samples = number(row, "throughput_samples_per_s"), seq = number(row, "seq"),
             gpus = number(row, "gpus");
  return samples && seq && gpus ? std::optional(*samples * *seq / *gpus) : std::nullopt;
}

// As Result::gap().
std::optional<double> gap_of(const json& row) {
  const auto step = number(row, "step_time_s"), bound = number(row, "lower_bound_s");
  return step && bound && *bound > 0 ? std::optional(std::max(0.0, *step / *bound - 1)) : std::nullopt;
}

Table model_table(const json& rows, const OptionColumns& options, size_t count) {
  std::vector<std::string> head{
      "schedule",  "model", "seq",    "size",         "tp",  "pp",           "m",         "samples/s",
      "published", "error", "gap, %", "tokens/s/GPU", "MFU", "MFU as paper", "published", "activations, GB",
      "published", "error", ""};
  std::vector<std::vector<std::string>> lines;
  for (size_t i = 0; i < count; ++i) {
    const json &row = rows[i], &published = row.at("published"), &difference = row.at("difference");
    lines.push_back({schedule_name(row), text(row.at("model")), text(row.at("seq")),
                     text(row.at("microbatch_size")), text(row.at("tp")), text(row.at("pp")),
                     text(row.at("microbatches")), fixed(number(row, "throughput_samples_per_s"), 3),
                     fixed(number(published, "throughput_samples_per_s"), 2),
                     percent(number(difference, "throughput_samples_per_s")), percentage(gap_of(row), 1),
                     fixed(tokens_per_s_per_gpu(row), 0), percentage(number(row, "mfu"), 1),
                     percentage(number(row, "mfu_paper"), 1), percentage(number(published, "mfu_paper"), 1),
                     fixed(number(row, "peak_memory_gb"), 1), fixed(number(published, "peak_memory_gb"), 0),
                     percent(number(difference, "peak_memory_gb")),
                     row.at("calibration").get<bool>() && !published.is_null() ? "calibrated" : ""});
  }
  return options.table(std::move(head), std::move(lines), 7);
}

Table unit_cost_table(const json& rows, size_t count) {
  Table table({"schedule", "pp", "m", "step", "gap, %", "idle", "closed form", "error", "peak chunks",
               "closed form", "error"});
  for (size_t i = 0; i < count; ++i) {
    const json &row = rows[i], &published = row.at("published"), &difference = row.at("difference");
    table.add({schedule_name(row), text(row.at("pp")), text(row.at("microbatches")),
               fixed(number(row, "step_time_s"), 3), percentage(gap_of(row), 1),
               fixed(number(row, "idle_s"), 3), fixed(number(published, "idle_s"), 3),
               percent(number(difference, "idle_s")), text(row.at("peak_activation_chunks")),
               fixed(number(published, "peak_activation_chunks"), 0),
               percent(number(difference, "peak_activation_chunks"))});
  }
  return table;
}

Table share_table(const json& rows, size_t count) {
  Table table({"cluster", "model", "seq", "size", "tp", "TP share, %", "published", "error"});
  for (size_t i = 0; i < count; ++i) {
    const json &row = rows[i], &published = row.at("published"), &difference = row.at("difference");
    const auto theirs = number(published, "tp_communication_share");
    table.add({text(row.at("cluster")), text(row.at("model")), text(row.at("seq")),
               text(row.at("microbatch_size")), text(row.at("tp")),
               percentage(number(row, "tp_communication_share"), 1),
               theirs ? percentage(theirs, 1) : "not published",
               percent(number(difference, "tp_communication_share"))});
  }
  return table;
}

// For scenarios that ask whether a row fits into a GPU's memory.
Table fits_table(const json& rows, size_t count) {
  Table table({"schedule", "model", "seq", "size", "tp", "pp", "activations, GB", "all, GB", "GPU, GB",
               "margin, GB", "fits", "published", ""});
  const auto verdict = [](bool fits) { return fits ? "yes" : "out of memory"; };
  const auto ours = [&](const std::string& fits) {
    return fits == "maybe" ? "maybe" : verdict(fits == "yes");
  };
  for (size_t i = 0; i < count; ++i) {
    const json &row = rows[i], &published = row.at("published");
    double all = 0;
    for (const json& rank : row.at("ranks")) {
      double bytes = 0;
      for (const auto& [kind, of_kind] : rank.at("memory_bytes").items())
        bytes += kind == "host" ? 0 : of_kind.get<double>();
      all = std::max(all, bytes / 1e9);
    }
    const double margin = row.at("memory_margin_gb").get<double>();
    const bool known = published.is_object() && published.contains("fits");
    const std::string fits = row.at("fits").get<std::string>();
    const bool wrong = known && fits == (published.at("fits").get<bool>() ? "no" : "yes");
    table.add({schedule_name(row), text(row.at("model")), text(row.at("seq")),
               text(row.at("microbatch_size")), text(row.at("tp")), text(row.at("pp")),
               fixed(number(row, "peak_memory_gb"), 1), fixed(all, 1), fixed(all + margin, 1),
               fixed(margin, 1), ours(fits), known ? verdict(published.at("fits").get<bool>()) : "–",
               wrong ? "wrong" : ""});
  }
  return table;
}

std::string milliseconds(const json& holder, const char* key) {
  const auto seconds = number(holder, key);
  return fixed(seconds ? std::optional(1e3 * *seconds) : std::nullopt, 3);
}

// One line of a pair: times alone and together, the error of the latter, and derived figures.
std::vector<std::string> pair_line(const std::string& name, const json& alone, const json& figures,
                                   std::optional<double> error) {
  return {name,
          milliseconds(alone, "gemm_s"),
          milliseconds(alone, "all_reduce_s"),
          milliseconds(alone, "serial_s"),
          milliseconds(figures, "together_s"),
          percent(error, 2),
          percent(number(figures, "compute_slowdown")),
          percent(number(figures, "communication_slowdown")),
          milliseconds(figures, "exposed_s"),
          milliseconds(figures, "saved_s")};
}

std::string shapes(const json& row) {
  const json &gemm = row.at("gemm"), &all_reduce = row.at("all_reduce");
  const auto size = [&](const char* key) { return fixed(number(gemm, key), 0); };
  return size("m") + " x " + size("n") + " x " + size("k") + ", " +
         shown("%g", all_reduce.at("bytes").get<double>() / (1 << 20)) + " MiB among " +
         text(all_reduce.at("ranks"));
}

}  // namespace

std::string pairs_table(const json& rows, const json& line) {
  Table table({"times", "GEMM, ms", "all-reduce", "serial", "together", "error", "GEMM slower",
               "all-reduce slower", "exposed", "saved"});
  for (const json& row : rows) {
    table.heading(text(row.at("name")));
    if (const json& published = row.at("published"); !published.is_null()) {
      const json& of_times = row.at("from_published_times");
      table.add(pair_line("  published", published, published, {}));
      table.add(pair_line("  together from the published", published, of_times,
                          number(of_times, "together_error")));
    }
    table.add(
        pair_line("  of " + shapes(row), row, row.at("figures"), number(row.at("difference"), "together_s")));
  }
  std::string lines = table.text();
  if (!line.contains("marks")) return lines;
  const json& criterion = line.at("marks").at(0);
  return lines + "together from the published: maximum error " + share_text(number(criterion, "value"), 2) +
         ": " + criteria_text(line) + " (tolerance " + share_text(number(criterion, "tolerance"), 0) + "); " +
         text(line.at("reason")) + "\n";
}

// schedule_name() shows the name, braid, merged backwards and contention.
OptionColumns columns_of_comparison() {
  return OptionColumns(
      {"name", "model", "seq", "microbatch_size", "microbatches", "braid", "merge_backward", "contention"},
      {"tp", "pp"});
}

std::string gap_note(std::optional<double> widest) {
  if (!widest) return "";
  return wrapped(
      "gap: the most that any other schedule of its placement and split of layers could gain over this "
      "row, " +
      share_text(widest) + " at most\n");
}

std::string comparison_table(const json& rows, const OptionColumns& options, size_t most) {
  bool models = false, shares = false, fits = false;
  for (const json& row : rows) {
    models = models || !row.at("model").is_null();
    shares = shares || number(row.at("published"), "tp_communication_share");
    fits = fits || (row.at("published").is_object() && row.at("published").contains("fits"));
  }
  const size_t count = std::min(rows.size(), models ? most : most / 4);
  const Table table = shares   ? share_table(rows, count)
                      : fits   ? fits_table(rows, count)
                      : models ? model_table(rows, options, count)
                               : unit_cost_table(rows, count);
  std::optional<double> widest_gap;
  for (const json& row : rows)
    if (!shares && !fits) widest_gap = std::max(widest_gap, gap_of(row));
  std::string lines = table.text() + gap_note(widest_gap);
  if (count < rows.size())
    lines += "… and " + std::to_string(rows.size() - count) + " more rows in the result file\n";
  return lines;
}

std::string summary_table(const json& experiments) {
  Table table({"experiment", "evidence", "rows", "calibrated", "throughput error", "ratio error",
               "gain error, points", "activations error", "pairs right", "criteria"});
  for (const json& line : experiments)
    table.add({text(line.at("id")), text(line.at("evidence")), text(line.at("rows")),
               text(line.at("calibration_rows")), share_text(number(line, "throughput_error_mean"), 2),
               share_text(number(line, "ratio_error_mean"), 2),
               fixed(number(line, "gain_error_points_mean"), 2),
               share_text(number(line, "memory_error_mean"), 2),
               text(line.at("pairs_right")) + " of " + text(line.at("pairs")), criteria_text(line)});
  return table.text();
}

}  // namespace stp
