#include "compare_screen.h"
#include "table.h"

namespace stp {
namespace {

using nlohmann::json;

std::string name_of(const json& file) {
  return word_of(file.at("label")) + " " + word_of(file.at("evidence"));
}

std::string step_text(const json& cell) {
  std::string text = duration(number_at(cell, "step_time_s"));
  if (const json& interval = cell.at("step_time_interval_s"); interval.is_array())
    text += " [" + duration(interval[0].get<double>()) + ", " + duration(interval[1].get<double>()) + "]";
  return text;
}

// Whether more than the configuration's heading must say which schedule a line is of.
std::string row_schedule(const json& row) {
  std::string names;
  for (const json& cell : row.at("cells")) {
    if (cell.is_null()) continue;
    const std::string name = word_of(cell.at("schedule"));
    if (names != name) names += (names.empty() ? "" : " | ") + name;
  }
  return names;
}

size_t files_with(const json& row) {
  size_t count = 0;
  for (const json& cell : row.at("cells")) count += cell.is_null() ? 0 : 1;
  return count;
}

std::string figures(const json& comparison) {
  const json& files = comparison.at("files");
  Table table({"  schedule", "file", "samples/s", "to A", "step", "to A", "judged", "MFU", "PP bubble",
               "TP bubble", "GB", "to A"});
  std::string heading;
  for (const json& row : comparison.at("rows")) {
    if (files_with(row) < 2) continue;
    if (const std::string now = configuration_text(row.at("configuration")); now != heading) {
      table.heading(now);
      heading = now;
    }
    bool named = false;
    for (size_t file = 0; file < files.size(); ++file) {
      const json& cell = row.at("cells")[file];
      if (cell.is_null()) continue;
      const json& against = cell.at("against_first");
      const auto difference = [&](const char* key) {
        return against.is_null() ? "" : percent(number_at(against, key));
      };
      table.add({named ? "" : "  " + row_schedule(row), name_of(files[file]),
                 fixed(number_at(cell, "throughput_samples_per_s"), 3), difference("throughput"),
                 step_text(cell), difference("step_time"),
                 against.is_null() || against.at("verdict").is_null() ? "" : word_of(against.at("verdict")),
                 share_text(number_at(cell, "mfu")), share_text(number_at(cell, "pp_bubble_share")),
                 share_text(number_at(cell, "tp_bubble_share")), fixed(number_at(cell, "peak_memory_gb"), 2),
                 difference("peak_memory")});
      named = true;
    }
  }
  return table.text();
}

std::string prediction_table(const json& comparison, const json& errors) {
  const std::string predicted = word_of(errors.at("predicted_by")), actual = word_of(errors.at("actual"));
  size_t file = 0;  // the one of the two that is not the first
  for (size_t i = 1; i < comparison.at("files").size(); ++i) {
    const std::string label = word_of(comparison.at("files")[i].at("label"));
    if (label == predicted || label == actual) file = i;
  }
  Table table({"  schedule", "predicted step", "real step", "error", "in its interval", "memory error"});
  std::string heading;
  for (const json& row : comparison.at("rows")) {
    const json& cell = row.at("cells")[file];
    if (cell.is_null() || cell.at("prediction").is_null()) continue;
    const json& told = cell.at("prediction");
    if (const std::string now = configuration_text(row.at("configuration")); now != heading) {
      table.heading(now);
      heading = now;
    }
    table.add({"  " + row_schedule(row), duration(number_at(told, "predicted_step_s")),
               duration(number_at(told, "actual_step_s")), percent(number_at(told, "step_error"), 2),
               word_of(told.at("within_interval")), percent(number_at(told, "peak_memory_error"))});
  }
  std::string text = "\nPrediction errors: " + predicted + " (" + word_of(errors.at("predicted_evidence")) +
                     ") of what " + actual + " has (" + word_of(errors.at("actual_evidence")) + ")\n" +
                     table.text();
  if (const auto mean = number_at(errors, "step_error_mean"))
    text += "Step time: " + fixed(100 * *mean, 2) + " % off in the mean, at worst " +
            percent(number_at(errors, "step_error_worst"), 2) +
            "; within the 95 % interval of the median in " + word_of(errors.at("within_interval")) + " of " +
            word_of(errors.at("intervals")) + " rows that have one\n";
  return text;
}

// Rows that not every file has, those of one configuration together.
std::string lacking(const json& comparison) {
  std::string text, before;
  for (const json& row : comparison.at("rows")) {
    std::string with;
    for (size_t file = 0; file < comparison.at("files").size(); ++file)
      if (!row.at("cells")[file].is_null())
        with += (with.empty() ? "" : ", ") + word_of(comparison.at("files")[file].at("label"));
    if (files_with(row) == comparison.at("files").size()) continue;
    const std::string place = "only in " + with + ": " + configuration_text(row.at("configuration"));
    text += (place == before ? ", " : (text.empty() ? "  " : "\n  ") + place + ": ") + row_schedule(row);
    before = place;
  }
  return text.empty() ? "" : "\nRows that a file lacks (their figures: --json)\n" + text + "\n";
}

}  // namespace

std::string records_screen(const json& comparison) {
  std::string text;
  for (const json& file : comparison.at("files"))
    text += word_of(file.at("label")) + "  " + word_of(file.at("path")) + ": " +
            word_of(file.at("scenario")) + ", " + word_of(file.at("evidence")) + "\n";
  text += differences_text(comparison) + "\n" + figures(comparison);
  for (const json& errors : comparison.at("predictions")) text += prediction_table(comparison, errors);
  text += lacking(comparison);
  const json& rule = comparison.at("rule");
  text += "\nBubbles are those of the rank that computes most; GB is peak activation memory.";
  if (rule.at("comparisons") > 0)
    text +=
        " In brackets the 95 % interval of the median (order statistics). Judged is the step: "
        "by\nMann-Whitney's U "
        "with Holm's correction over " +
        word_of(rule.at("comparisons")) + " comparisons at " +
        fixed(100 * rule.at("error_rate").get<double>(), 0) + " %, and different from " +
        fixed(100 * rule.at("least_difference").get<double>(), 0) + " % on.";
  return text + "\n";
}

}  // namespace stp
