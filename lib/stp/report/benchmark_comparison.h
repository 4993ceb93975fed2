// Files of Google Benchmark (--benchmark_format=json), side by side.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "stp/report/verdicts.h"

namespace stp {

/// One benchmark of a file.
struct BenchmarkRow {
  std::string name;                                     // `run_name`: without what tells repetitions apart
  std::vector<double> seconds;                          // real time an iteration, by repetition
  std::map<std::string, std::vector<double>> counters;  // user counters, by repetition
  std::string trouble;                                  // why there is no time: an error, or skipped
};

struct BenchmarkFile {
  std::string path;
  nlohmann::json context;          // of the machine and the program, as written
  std::vector<BenchmarkRow> rows;  // in the order of registration, however they were interleaved
};

/// Whether `content` looks like one.
bool is_benchmark_file(const nlohmann::json& content);

/// The text of such a file, with what is no JSON made null: Google Benchmark writes NaN and Infinity.
std::string without_non_finite(const std::string& text);

/// InputError that names file, field and remedy: aggregates alone, a unit or a time that is none.
BenchmarkFile read_benchmarks(const nlohmann::json& content, const std::string& path);

/// All files beside the first, as results/schema/comparison.schema.json has it under kind `benchmarks`.
/// InputError if a file has no benchmark in common with the first.
nlohmann::json compare_benchmarks(const std::vector<BenchmarkFile>& files, const VerdictRule& rule = {});

}  // namespace stp
