#include "narrow_table.h"

#include <algorithm>
#include <cstdio>

namespace stp::microbench {
namespace {

constexpr size_t kNameWidth = 50;

// Without what Google Benchmark adds to every name.
std::string short_name(const std::string& name) {
  std::string text = name.substr(0, name.find("/iterations:"));
  if (text.size() <= kNameWidth) return text;
  constexpr size_t kHalf = (kNameWidth - 2) / 2;
  return text.substr(0, kHalf) + ".." + text.substr(text.size() - kHalf);
}

}  // namespace

std::string narrow_line(const std::string& name, const std::map<std::string, double>& times) {
  const double median = times.at("median");
  constexpr double kMost = 999.9;  // what has room; more says no more
  const double share = std::min(50 * (times.at("high95") - times.at("low95")) / median, kMost);
  char line[160];
  std::snprintf(line, sizeof line, "%-*s %10.2f  +-%5.1f %%%s", static_cast<int>(kNameWidth),
                short_name(name).c_str(), median, share, times.at("noisy") > 0 ? "  noisy" : "");
  return line;
}

bool NarrowTable::ReportContext(const Context& /*context*/) {
  std::printf("%-*s %10s  %9s\n", static_cast<int>(kNameWidth), "benchmark", "median, us", "95 %");
  return true;
}

void NarrowTable::ReportRuns(const std::vector<Run>& runs) {
  std::map<std::string, double> times;
  for (const Run& run : runs) {
    const std::string name = short_name(run.run_name.str());
    if (run.error_occurred) {
      std::printf("%s\n  %s\n", name.c_str(), run.error_message.c_str());
      return;
    }
    if (run.run_type == Run::RT_Aggregate)
      times[run.aggregate_name] = run.aggregate_unit == ::benchmark::kPercentage ? run.real_accumulated_time
                                                                                 : run.GetAdjustedRealTime();
    else if (run.repetitions <= 1)
      std::printf("%-*s %10.2f\n", static_cast<int>(kNameWidth), name.c_str(), run.GetAdjustedRealTime());
  }
  if (!times.contains("median") || !times.contains("low95")) return;
  ++rows_;
  noisy_ += times.at("noisy") > 0 ? 1 : 0;
  std::printf("%s\n", narrow_line(runs.front().run_name.str(), times).c_str());
}

void NarrowTable::Finalize() {
  if (rows_ > 0)
    std::printf("%d rows, %d noisy; counters and all samples: --benchmark_out=FILE\n", rows_, noisy_);
}

}  // namespace stp::microbench
