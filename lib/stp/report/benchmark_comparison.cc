#include "stp/report/benchmark_comparison.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <tuple>

#include "stp/base/json_input.h"
#include "stp/report/file_label.h"

namespace stp {
namespace {

using nlohmann::json;

// Fields of an iteration that are no counters.
const std::set<std::string> kOwnFields = {"name",
                                          "family_index",
                                          "per_family_instance_index",
                                          "run_name",
                                          "run_type",
                                          "repetitions",
                                          "repetition_index",
                                          "threads",
                                          "iterations",
                                          "real_time",
                                          "cpu_time",
                                          "time_unit",
                                          "label",
                                          "error_occurred",
                                          "error_message",
                                          "skipped",
                                          "skip_message"};

double seconds_per(const std::string& unit, const JsonInput& input) {
  if (unit == "ns") return 1e-9;
  if (unit == "us") return 1e-6;
  if (unit == "ms") return 1e-3;
  if (unit == "s") return 1;
  throw input.error("time_unit", "\"" + unit + "\" is no unit of Google Benchmark's",
                    "write ns, us, ms or s");
}

// Why an iteration has no time; "" if it has. Before version 1.8 errors, from then on skips.
std::string trouble_of(const json& iteration) {
  const auto said = [&](const char* key) {
    return iteration.contains(key) && iteration[key].is_string() ? iteration[key].get<std::string>() : "";
  };
  const auto happened = [&](const char* key) {
    if (!iteration.contains(key)) return false;
    return iteration[key].is_boolean() ? iteration[key].get<bool>()
                                       : iteration[key].is_string() && !said(key).empty();
  };
  if (happened("error_occurred")) return said("error_message").empty() ? "failed" : said("error_message");
  if (happened("skipped")) return said("skip_message").empty() ? "skipped" : said("skip_message");
  return "";
}

json number_or_null(const std::optional<double>& value) { return value ? json(*value) : json(nullptr); }

json summary_json(const BenchmarkRow& row, const VerdictRule& rule) {
  const SampleSummary summary = summarise_sample(row.seconds, rule);
  json counters = json::object();
  for (const auto& [name, values] : row.counters) counters[name] = median(values);
  return {
      {"repetitions", row.seconds.size()},
      {"median_s", summary.median},
      {"interval_s", summary.interval ? json{summary.interval->low, summary.interval->high} : json(nullptr)},
      {"noisy", summary.noisy},
      {"counters", counters},
      {"against_first", nullptr}};
}

// Fields of the context in which the files differ; those that differ from run to run say nothing.
json context_differences(const std::vector<BenchmarkFile>& files) {
  std::set<std::string> names;
  for (const BenchmarkFile& file : files)
    for (const auto& [name, value] : file.context.items()) names.insert(name);
  json differences = json::array();
  for (const std::string& name : names) {
    if (name == "date" || name == "load_avg" || name == "mhz_per_cpu") continue;
    json values = json::array();
    for (const BenchmarkFile& file : files) values.push_back(file.context.value(name, json()));
    if (std::any_of(values.begin(), values.end(), [&](const json& value) { return value != values[0]; }))
      differences.push_back({{"field", name}, {"values", values}});
  }
  return differences;
}

}  // namespace

bool is_benchmark_file(const json& content) {
  return content.is_object() && content.contains("benchmarks") && content.contains("context");
}

std::string without_non_finite(const std::string& text) {
  std::string clean;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      clean += c;
      if (c == '\\' && i + 1 < text.size()) clean += text[++i];
      if (c == '"') quoted = false;
      continue;
    }
    quoted = c == '"';
    size_t length = 0;
    for (const char* word : {"NaN", "-NaN", "nan", "-nan", "Infinity", "-Infinity", "inf", "-inf"})
      if (text.compare(i, std::char_traits<char>::length(word), word) == 0)
        length = std::max(length, std::char_traits<char>::length(word));
    clean += length > 0 ? "null" : std::string(1, c);
    if (length > 0) i += length - 1;
  }
  return clean;
}

BenchmarkFile read_benchmarks(const json& content, const std::string& path) {
  JsonInput input(content, path);
  BenchmarkFile file{path, input.value("context"), {}};
  if (!file.context.is_object())
    throw input.error("context", "must be an object", "use the file as Google Benchmark wrote it");
  const json& all = input.array("benchmarks");
  std::map<std::string, size_t> index;
  std::vector<std::tuple<int, int, size_t>> order;  // registration, then first appearance
  for (size_t i = 0; i < all.size(); ++i) {
    JsonInput one(all[i], path, "benchmarks[" + std::to_string(i) + "]");
    if (one.string_or("run_type", "iteration") != "iteration") continue;
    const std::string name = one.has("run_name") ? one.string("run_name") : one.string("name");
    const auto [place, is_new] = index.try_emplace(name, file.rows.size());
    if (is_new) {
      file.rows.push_back({name, {}, {}, ""});
      order.emplace_back(one.integer_or("family_index", 0, 0),
                         one.integer_or("per_family_instance_index", 0, 0), order.size());
    }
    BenchmarkRow& row = file.rows[place->second];
    if (const std::string trouble = trouble_of(all[i]); !trouble.empty()) {
      row.trouble = trouble;
      continue;
    }
    constexpr double kLongest = 1e15;
    row.seconds.push_back(one.number("real_time", 0, kLongest) * seconds_per(one.string("time_unit"), one));
    for (const auto& [key, value] : all[i].items())
      if (value.is_number() && !kOwnFields.contains(key)) row.counters[key].push_back(value.get<double>());
  }
  if (file.rows.empty())
    throw input.error(
        "benchmarks",
        all.empty() ? "is empty" : "holds aggregates alone, and medians and tests need the repetitions",
        all.empty() ? "let the filter match something" : "run it without --benchmark_report_aggregates_only");
  std::sort(order.begin(), order.end());
  std::vector<BenchmarkRow> sorted;
  for (const auto& [family, instance, row] : order) sorted.push_back(std::move(file.rows[row]));
  file.rows = std::move(sorted);
  return file;
}

json compare_benchmarks(const std::vector<BenchmarkFile>& files, const VerdictRule& rule) {
  // Rows in the first file's order, then what only others have, in theirs.
  std::vector<std::string> names;
  std::vector<std::map<std::string, const BenchmarkRow*>> by_name(files.size());
  for (size_t file = 0; file < files.size(); ++file) {
    bool common = file == 0;
    for (const BenchmarkRow& row : files[file].rows) {
      if (std::find(names.begin(), names.end(), row.name) == names.end()) names.push_back(row.name);
      by_name[file][row.name] = &row;
      common = common || by_name[0].contains(row.name);
    }
    if (!common)
      throw InputError(files[file].path, "benchmarks", "has no benchmark in common with " + files[0].path,
                       "run the same program with the same filter");
  }

  json rows = json::array();
  std::vector<SamplePair> family;
  std::vector<std::pair<size_t, size_t>> places;  // of each of the family: row, file
  for (const std::string& name : names) {
    json cells = json::array();
    const auto measured = [&](size_t file) -> const BenchmarkRow* {
      const auto found = by_name[file].find(name);
      return found != by_name[file].end() && found->second->trouble.empty() ? found->second : nullptr;
    };
    for (size_t file = 0; file < files.size(); ++file) {
      const auto found = by_name[file].find(name);
      if (found == by_name[file].end()) {
        cells.push_back(nullptr);
      } else if (!found->second->trouble.empty()) {
        cells.push_back({{"skipped", found->second->trouble}});
      } else {
        cells.push_back(summary_json(*found->second, rule));
        if (file > 0 && measured(0) != nullptr) {
          family.push_back({measured(0)->seconds, found->second->seconds});
          places.emplace_back(rows.size(), file);
        }
      }
    }
    rows.push_back({{"name", name}, {"cells", cells}});
  }
  const std::vector<SampleComparison> comparisons = compare_samples(family, rule);
  for (size_t i = 0; i < comparisons.size(); ++i) {
    const SampleComparison& one = comparisons[i];
    rows[places[i].first]["cells"][places[i].second]["against_first"] = {
        {"difference", number_or_null(one.difference)},
        {"u", one.test.u},
        {"p", one.test.p},
        {"exact", one.test.exact},
        {"adjusted_p", one.adjusted_p},
        {"verdict", to_string(one.verdict)}};
  }

  json described = json::array();
  for (size_t file = 0; file < files.size(); ++file)
    described.push_back({{"label", file_label(file)},
                         {"path", files[file].path},
                         {"evidence", "measured"},
                         {"context", files[file].context}});
  return {{"kind", "benchmarks"},
          {"files", described},
          {"differs", context_differences(files)},
          {"rule", to_json(rule, family.size())},
          {"rows", rows}};
}

}  // namespace stp
