// The rows of bin/microbench on a terminal of 80 columns: a line each, and a count of what is noisy.
#pragma once

#include <benchmark/benchmark.h>

#include <map>
#include <string>
#include <vector>

namespace stp::microbench {

class NarrowTable : public ::benchmark::BenchmarkReporter {
 public:
  bool ReportContext(const Context& context) override;
  void ReportRuns(const std::vector<Run>& runs) override;
  void Finalize() override;

 private:
  int rows_ = 0, noisy_ = 0;
};

/// One line, of 79 columns at most: a row's name (its middle left out if it is long), median, half of its 95
/// % interval, at most 999.9 %, and whether it is noisy. `times` in µs by aggregate: median, low95, high95,
/// noisy.
std::string narrow_line(const std::string& name, const std::map<std::string, double>& times);

}  // namespace stp::microbench
