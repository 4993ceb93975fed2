#include "stp/report/record_comparison.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "stp/base/json_input.h"
#include "stp/report/file_label.h"

namespace stp {
namespace {

using nlohmann::json;

// From the weakest to the strongest.
constexpr Evidence kEvidence[] = {Evidence::simulated, Evidence::emulated, Evidence::replayed,
                                  Evidence::measured, Evidence::published};

// What a row is of, whoever made it; and what else may tell two rows of one file apart.
const std::vector<std::string> kBase = {"model", "seq", "microbatch_size", "tp", "pp",
                                        "cp",    "dp",  "microbatches"};
const std::vector<std::string> kFurther = {
    "cluster",           "contention", "braid", "release", "backward",   "recompute",
    "sequence_parallel", "freed_at",   "type",  "backend", "unit_costs", "layers_per_chunk"};

constexpr double kLargest = 1e30;

std::optional<double> optional_number(JsonInput& input, const std::string& key) {
  if (!input.has(key) || input.value(key).is_null()) return std::nullopt;
  return input.number(key, 0, kLargest);
}

json or_null(const std::optional<double>& value) { return value ? json(*value) : json(nullptr); }

std::optional<double> relative(std::optional<double> value, std::optional<double> of) {
  if (!value || !of || *of == 0) return std::nullopt;
  return *value / *of - 1;
}

Evidence read_evidence(JsonInput& input) {
  const std::string word = input.string("evidence");
  std::string list;
  for (const Evidence evidence : kEvidence) {
    if (word == to_string(evidence)) return evidence;
    list += (list.empty() ? "" : ", ") + to_string(evidence);
  }
  throw input.error("evidence", "\"" + word + "\" is none", "write one of " + list);
}

size_t strength(Evidence evidence) {
  return std::find(std::begin(kEvidence), std::end(kEvidence), evidence) - kEvidence;
}

RecordRow read_row(const json& content, const std::string& path, const std::string& field) {
  JsonInput input(content, path, field);
  RecordRow row{content, input.string("schedule"), {}, {}, {}, {}, {}, {}, {}};
  row.throughput = optional_number(input, "throughput_samples_per_s");
  row.step_s = optional_number(input, "step_time_s");
  row.mfu = optional_number(input, "mfu");
  row.peak_memory_gb = optional_number(input, "peak_memory_gb");
  if (input.has("step_time_repeats_s")) {
    const json& repeats = input.array("step_time_repeats_s");
    for (const json& repeat : repeats) {
      if (!repeat.is_number())
        throw input.error("step_time_repeats_s", "holds something that is no number", "write seconds");
      row.repeats_s.push_back(repeat.get<double>());
    }
  }
  double most = -1;
  if (!input.has("ranks")) return row;
  const json& ranks = input.array("ranks");
  for (size_t i = 0; i < ranks.size(); ++i) {
    JsonInput rank(ranks[i], path, input.path("ranks") + "[" + std::to_string(i) + "]");
    const double compute = rank.number("compute_s", 0, kLargest),
                 pp = rank.number("pp_bubble_s", 0, kLargest), tp = rank.number("tp_bubble_s", 0, kLargest);
    const double all = compute + pp + tp;
    if (compute <= most || all <= 0) continue;
    most = compute;
    row.pp_bubble = pp / all;
    row.tp_bubble = tp / all;
  }
  return row;
}

json field_of(const RecordRow& row, const std::string& name) { return row.fields.value(name, json()); }

std::string key_of(const RecordRow& row, const std::vector<std::string>& fields) {
  std::string key;
  for (const std::string& field : fields) key += field_of(row, field).dump() + "|";
  return key;
}

// Whether every file says something of it somewhere.
bool known_by_all(const std::vector<RecordFile>& files, const std::string& field) {
  return std::all_of(files.begin(), files.end(), [&](const RecordFile& file) {
    return std::any_of(file.rows.begin(), file.rows.end(),
                       [&](const RecordRow& row) { return !field_of(row, field).is_null(); });
  });
}

bool one_schedule_each(const std::vector<RecordFile>& files) {
  return std::all_of(files.begin(), files.end(), [](const RecordFile& file) {
    return std::all_of(file.rows.begin(), file.rows.end(),
                       [&](const RecordRow& row) { return row.schedule == file.rows[0].schedule; });
  });
}

// The fields in which rows must agree to be of the same thing.
std::vector<std::string> key_fields(const std::vector<RecordFile>& files) {
  std::vector<std::string> base;
  for (const std::string& field : kBase)
    if (known_by_all(files, field)) base.push_back(field);
  std::vector<std::string> key = base;
  if (!one_schedule_each(files)) base.emplace_back("schedule");
  for (const std::string& field : kFurther) {
    if (!known_by_all(files, field)) continue;
    const bool telling = std::any_of(files.begin(), files.end(), [&](const RecordFile& file) {
      std::map<std::string, json> seen;
      return std::any_of(file.rows.begin(), file.rows.end(), [&](const RecordRow& row) {
        const auto [place, is_new] = seen.try_emplace(key_of(row, base), field_of(row, field));
        return !is_new && place->second != field_of(row, field);
      });
    });
    if (telling) key.push_back(field);
  }
  return key;
}

// In what else the files differ: per field the values of each, in order of appearance.
json differences(const std::vector<RecordFile>& files, const std::vector<std::string>& key) {
  json told = json::array();
  const auto tell = [&](const std::string& name, const std::vector<json>& values) {
    if (std::any_of(values.begin(), values.end(), [&](const json& value) { return value != values[0]; }))
      told.push_back({{"field", name}, {"values", values}});
  };
  std::vector<std::string> names = kBase;
  names.insert(names.end(), kFurther.begin(), kFurther.end());
  for (const std::string& name : names) {
    // Layers by chunk follow from the schedule's placement.
    if (std::find(key.begin(), key.end(), name) != key.end() || name == "layers_per_chunk") continue;
    std::vector<json> values;
    for (const RecordFile& file : files) {
      json seen = json::array();
      for (const RecordRow& row : file.rows)
        if (std::find(seen.begin(), seen.end(), field_of(row, name)) == seen.end())
          seen.push_back(field_of(row, name));
      values.push_back(seen.size() == 1 ? seen[0] : seen);
    }
    tell(name, values);
  }
  for (const auto& [name, where, what] :
       {std::tuple{"host", &RecordFile::system, "host_processor_model_name"},
        {"revision", &RecordFile::provenance, "git_revision"},
        {"build", &RecordFile::provenance, "build_type"}}) {
    std::vector<json> values;
    for (const RecordFile& file : files) values.push_back((file.*where).value(what, json()));
    tell(name, values);
  }
  return told;
}

json cell_of(const RecordRow& row) {
  const auto interval = row.repeats_s.empty() ? std::nullopt : median_interval(row.repeats_s);
  return {{"schedule", row.schedule},
          {"throughput_samples_per_s", or_null(row.throughput)},
          {"step_time_s", or_null(row.step_s)},
          {"step_time_interval_s", interval ? json{interval->low, interval->high} : json(nullptr)},
          {"repeats", row.repeats_s.size()},
          {"mfu", or_null(row.mfu)},
          {"pp_bubble_share", or_null(row.pp_bubble)},
          {"tp_bubble_share", or_null(row.tp_bubble)},
          {"peak_memory_gb", or_null(row.peak_memory_gb)},
          {"against_first", nullptr},
          {"prediction", nullptr}};
}

json against(const RecordRow& row, const RecordRow& first) {
  return {{"throughput", or_null(relative(row.throughput, first.throughput))},
          {"step_time", or_null(relative(row.step_s, first.step_s))},
          {"peak_memory", or_null(relative(row.peak_memory_gb, first.peak_memory_gb))},
          {"p", nullptr},
          {"adjusted_p", nullptr},
          {"verdict", nullptr}};
}

// The weaker evidence as a prediction of the stronger.
json prediction(const RecordRow& weaker, const RecordRow& stronger) {
  const auto interval = stronger.repeats_s.empty() ? std::nullopt : median_interval(stronger.repeats_s);
  json within = nullptr;
  if (interval && weaker.step_s) within = interval->low <= *weaker.step_s && *weaker.step_s <= interval->high;
  return {{"predicted_step_s", or_null(weaker.step_s)},
          {"actual_step_s", or_null(stronger.step_s)},
          {"step_error", or_null(relative(weaker.step_s, stronger.step_s))},
          {"within_interval", within},
          {"peak_memory_error", or_null(relative(weaker.peak_memory_gb, stronger.peak_memory_gb))}};
}

// Rows by what they are of, in order of appearance; those of one file that nothing tells apart are numbered.
struct Alignment {
  std::vector<std::string> keys;
  std::vector<std::map<std::string, const RecordRow*>> by_key;  // by file
};

Alignment align(const std::vector<RecordFile>& files, std::vector<std::string> fields) {
  if (!one_schedule_each(files)) fields.emplace_back("schedule");
  Alignment alignment;
  std::set<std::string> known;
  for (const RecordFile& file : files) {
    auto& rows = alignment.by_key.emplace_back();
    bool common = alignment.by_key.size() == 1;
    for (const RecordRow& row : file.rows) {
      std::string key = key_of(row, fields);
      while (!rows.emplace(key, &row).second) key += "|again";
      common = common || alignment.by_key[0].contains(key);
      if (known.insert(key).second) alignment.keys.push_back(key);
    }
    if (!common)
      throw InputError(file.path, "", "has no configuration in common with " + files[0].path,
                       "compare records that share model, lengths, parallelism, microbatches and schedules");
  }
  return alignment;
}

// How good the predictions of one pair of files are.
json prediction_errors(const std::vector<RecordFile>& files, size_t file, const json& rows) {
  const bool first_is_weaker = strength(files[0].evidence) < strength(files[file].evidence);
  double sum = 0, worst = 0;
  int count = 0, within = 0, intervals = 0;
  for (const json& row : rows) {
    const json& cell = row.at("cells").at(file);
    if (cell.is_null() || cell.at("prediction").is_null()) continue;
    const json& told = cell.at("prediction");
    if (told.at("within_interval").is_boolean()) {
      ++intervals;
      within += told.at("within_interval").get<bool>();
    }
    if (!told.at("step_error").is_number()) continue;
    const double error = told.at("step_error");
    sum += std::abs(error);
    if (std::abs(error) >= std::abs(worst)) worst = error;
    ++count;
  }
  return {{"predicted_by", file_label(first_is_weaker ? 0 : file)},
          {"actual", file_label(first_is_weaker ? file : 0)},
          {"predicted_evidence", to_string(files[first_is_weaker ? 0 : file].evidence)},
          {"actual_evidence", to_string(files[first_is_weaker ? file : 0].evidence)},
          {"rows", count},
          {"step_error_mean", count > 0 ? json(sum / count) : json(nullptr)},
          {"step_error_worst", count > 0 ? json(worst) : json(nullptr)},
          {"intervals", intervals},
          {"within_interval", within}};
}

}  // namespace

bool is_record(const json& content) {
  return content.is_object() && content.contains("evidence") &&
         (content.contains("results") || content.contains("rows") || content.contains("pairs")) &&
         content.contains("scenario");
}

RecordFile read_record(const json& content, const std::string& path) {
  JsonInput input(content, path);
  RecordFile file{path, input.object("scenario").string("name"), read_evidence(input), {}, {}, {}};
  for (const auto& [key, value] : {std::pair{"system", &file.system}, {"provenance", &file.provenance}}) {
    *value = content.value(key, json::object());
    if (!value->is_object()) throw input.error(key, "must be an object", "use the record as it was written");
  }
  if (input.has("pairs"))
    throw input.error("pairs", "are products and all-reduces, without schedules to compare",
                      "name records of scenarios with schedules");
  const std::string rows_key = input.has("results") ? "results" : "rows";
  const json& rows = input.array(rows_key);
  for (size_t i = 0; i < rows.size(); ++i)
    file.rows.push_back(read_row(rows[i], path, rows_key + "[" + std::to_string(i) + "]"));
  if (file.rows.empty()) throw input.error(rows_key, "is empty", "there is nothing to compare");
  return file;
}

json compare_records(const std::vector<RecordFile>& files, const VerdictRule& rule) {
  const std::vector<std::string> fields = key_fields(files);
  const Alignment alignment = align(files, fields);

  json rows = json::array();
  std::vector<SamplePair> family;
  std::vector<std::pair<size_t, size_t>> places;  // of each of the family: row, file
  for (const std::string& key : alignment.keys) {
    json cells = json::array();
    const RecordRow* described = nullptr;
    const auto of_file = [&](size_t file) -> const RecordRow* {
      const auto found = alignment.by_key[file].find(key);
      return found == alignment.by_key[file].end() ? nullptr : found->second;
    };
    const RecordRow* first = of_file(0);
    for (size_t i = 0; i < files.size(); ++i) {
      const RecordRow* row = of_file(i);
      if (row == nullptr) {
        cells.push_back(nullptr);
        continue;
      }
      if (described == nullptr) described = row;
      json cell = cell_of(*row);
      if (i > 0 && first != nullptr && files[i].evidence == files[0].evidence) {
        cell["against_first"] = against(*row, *first);
        if (row->repeats_s.size() > 1 && first->repeats_s.size() > 1) {
          family.push_back({first->repeats_s, row->repeats_s});
          places.emplace_back(rows.size(), i);
        }
      } else if (i > 0 && first != nullptr) {
        const bool first_is_weaker = strength(files[0].evidence) < strength(files[i].evidence);
        cell["prediction"] = first_is_weaker ? prediction(*first, *row) : prediction(*row, *first);
      }
      cells.push_back(cell);
    }
    json configuration = json::object();
    for (const std::string& field : fields) configuration[field] = field_of(*described, field);
    rows.push_back({{"configuration", configuration}, {"cells", cells}});
  }
  const std::vector<SampleComparison> comparisons = compare_samples(family, rule);
  for (size_t i = 0; i < comparisons.size(); ++i) {
    json& told = rows[places[i].first]["cells"][places[i].second]["against_first"];
    told["p"] = comparisons[i].test.p;
    told["adjusted_p"] = comparisons[i].adjusted_p;
    told["verdict"] = to_string(comparisons[i].verdict);
  }

  json described = json::array(), predictions = json::array();
  for (size_t i = 0; i < files.size(); ++i) {
    described.push_back({{"label", file_label(i)},
                         {"path", files[i].path},
                         {"evidence", to_string(files[i].evidence)},
                         {"scenario", files[i].scenario},
                         {"provenance", files[i].provenance},
                         {"system", files[i].system}});
    if (files[i].evidence != files[0].evidence) predictions.push_back(prediction_errors(files, i, rows));
  }
  return {{"kind", "records"},
          {"files", described},
          {"differs", differences(files, fields)},
          {"rule", to_json(rule, family.size())},
          {"predictions", predictions},
          {"rows", rows}};
}

}  // namespace stp
