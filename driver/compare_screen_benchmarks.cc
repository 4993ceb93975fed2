#include <map>

#include "compare_screen.h"
#include "table.h"

namespace stp {
namespace {

using nlohmann::json;

// Half the interval of the median, relative; "noisy" beside it where that is too much.
std::string half_width(const json& cell) {
  const json& interval = cell.at("interval_s");
  const double median = cell.at("median_s");
  if (!interval.is_array() || median <= 0) return "–";
  return "±" + fixed(50 * (interval[1].get<double>() - interval[0].get<double>()) / median, 1) + " %";
}

std::string p_text(std::optional<double> p) {
  if (!p) return "–";
  if (*p >= 0.001) return fixed(p, 3);
  char text[32];
  std::snprintf(text, sizeof text, "%.0e", *p);
  return text;
}

}  // namespace

std::string benchmarks_screen(const json& comparison) {
  const json& files = comparison.at("files");
  const json& rule = comparison.at("rule");
  std::string text;
  for (const json& file : files) text += word_of(file.at("label")) + "  " + word_of(file.at("path")) + "\n";
  text += differences_text(comparison) + "\n";

  std::vector<std::string> head{"benchmark"};
  for (size_t file = 0; file < files.size(); ++file) {
    const std::string label = word_of(files[file].at("label"));
    head.insert(head.end(), {label + ", median", "95 %"});
    if (file > 0) head.insert(head.end(), {"to A", "adjusted p", "judged"});
  }
  Table table(head);
  std::map<std::string, int> verdicts;
  int noisy = 0;
  std::string lacking;
  for (const json& row : comparison.at("rows")) {
    std::vector<std::string> line{word_of(row.at("name"))};
    const json& first = row.at("cells")[0];
    bool any_noisy = false;
    const auto is_noisy = [](const json& cell) { return cell.is_object() && cell.value("noisy", false); };
    for (size_t file = 0; file < files.size(); ++file) {
      const json& cell = row.at("cells")[file];
      const bool timed = cell.is_object() && !cell.contains("skipped");
      line.insert(line.end(),
                  {timed ? duration(number_at(cell, "median_s")) : "–", timed ? half_width(cell) : ""});
      any_noisy = any_noisy || is_noisy(cell);
      if (!timed)
        lacking += "  " + line[0] + ": " + word_of(files[file].at("label")) +
                   (cell.is_null() ? " has none" : " skipped it: " + word_of(cell.at("skipped"))) + "\n";
      if (file == 0) continue;
      const json against = timed ? cell.at("against_first") : json();
      if (against.is_null()) {
        line.insert(line.end(), {"", "", ""});
        continue;
      }
      ++verdicts[against.at("verdict")];
      line.insert(line.end(),
                  {percent(number_at(against, "difference")), p_text(number_at(against, "adjusted_p")),
                   word_of(against.at("verdict")) + (is_noisy(first) || is_noisy(cell) ? ", noisy" : "")});
    }
    noisy += any_noisy;
    table.add(line);
  }
  text += table.text();
  if (!lacking.empty()) text += "\nNot compared\n" + lacking;
  text += "\n" + word_of(rule.at("comparisons")) + " comparisons:";
  std::string counts;
  for (const char* verdict : {"same", "faster", "slower", "too few"})
    if (verdicts[verdict] > 0)
      counts += (counts.empty() ? " " : ", ") + std::to_string(verdicts[verdict]) + " " + verdict;
  text += (counts.empty() ? " none" : counts) + "; " + std::to_string(noisy) + " noisy\n";
  const auto rate = [&](const char* key) { return fixed(100 * rule.at(key).get<double>(), 0) + " %"; };
  text += "95 %: half the interval of the median, by order statistics (exact); noisy above " +
          rate("noisy_above") +
          ".\nJudged by Mann-Whitney's U, two-sided (exact where there are no ties and fewer than 50 "
          "repetitions), with "
          "Holm's correction\nover all comparisons: at most " +
          rate("error_rate") + " chance of any false difference. Medians that differ by less than " +
          rate("least_difference") + " are the same.\n";
  if (verdicts["too few"] > 0)
    text += "Too few repetitions to tell: so many comparisons need " +
            word_of(rule.at("repetitions_needed")) + " a side at the least (--benchmark_repetitions).\n";
  return text;
}

}  // namespace stp
