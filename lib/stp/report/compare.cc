#include "stp/report/compare.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <vector>

#include "stp/model/strategy.h"

namespace stp {
namespace {

using nlohmann::json;

// The figures that papers publish as values or closed forms and that we predict.
constexpr std::array kFigures{"throughput_samples_per_s",
                              "step_time_s",
                              "peak_memory_gb",
                              "mfu",
                              "mfu_paper",
                              "idle_s",
                              "peak_activation_chunks",
                              "tp_communication_share",
                              "total_memory_gb"};
constexpr const char* kThroughput = "throughput_samples_per_s";
constexpr const char* kFits = "fits";  // published: the row ran, or was out of memory
constexpr double kPairGap =
    0.02;  // pairs of schedules that differ by more than this in the paper must keep their order

bool is_figure(const std::string& key) {
  return std::find(kFigures.begin(), kFigures.end(), key) != kFigures.end();
}

bool agrees(const json& row, const json& pattern) {
  for (const auto& [key, value] : pattern.items()) {
    if (is_figure(key) || key == "table" || key == kFits) continue;
    const auto found = row.find(key);
    if (found == row.end() ? value != false : *found != value) return false;
  }
  return true;
}

std::vector<json> read_published(const std::string& folder) {
  std::vector<json> rows;
  std::set<std::filesystem::path> files;
  std::error_code missing;
  for (const auto& entry : std::filesystem::directory_iterator(folder, missing))
    if (entry.path().extension() == ".json") files.insert(entry.path());
  if (missing)
    throw InputError(folder, "", "published figures cannot be read",
                     "check STP_DATA_DIR, or install the data");
  for (const auto& file : files) {
    JsonInput input = JsonInput::of_file(file);
    for (const json& row : input.array("rows")) {
      if (!row.is_object())
        throw input.error("rows", "has an element that is not an object", "write {…} per row");
      rows.push_back(row);
    }
  }
  return rows;
}

std::optional<double> figure(const json& holder, const std::string& key) {
  if (!holder.is_object()) return std::nullopt;
  const auto found = holder.find(key);
  if (found == holder.end() || !found->is_number()) return std::nullopt;
  return found->get<double>();
}

// The fields that distinguish rows, besides the schedule and its consequences, and besides m for figures that
// do not depend on m.
std::vector<std::string> configuration_fields() {
  std::vector<std::string> fields{"name", "model",         "cluster",        "cluster_values",
                                  "seq",  "vision_tokens", "microbatch_size"};
  for (const Axis& axis : kAxes) {
    fields.emplace_back(axis.name);
    if (axis.ranks == &Strategy::cp) fields.emplace_back("cp_method");
  }
  for (const char* field :
       {"zero", "post_validation", "release", "backward", "braid", "merge_backward", "freed_at", "contention",
        "gradients", "recompute", "sequence_parallel", "tp_overlap", "offload_ratio", "offload_chunks",
        "offload_share", "offload_round_trip", "unit_costs"})
    fields.emplace_back(field);
  fields.insert(fields.end(), {"implementation", "recipe", "scatter_transfers", "sends_share_adapter"});
  return fields;
}

std::string configuration_key(const json& row, bool with_microbatches) {
  static const std::vector<std::string> kFields = configuration_fields();
  std::string key;
  for (const std::string& field : kFields)
    if (row.contains(field)) key += json_text(row.at(field)) + "|";
  return with_microbatches ? key + json_text(row.at("microbatches")) : key;
}

// A kind of error, by its name in summary.json, and the figure of a row that it belongs to.
struct ErrorKind {
  std::string_view name, figure;  // of gains and ratios, which are of two rows, ""
};
constexpr ErrorKind kGain{"gain_error_points", ""}, kRatio{"ratio_error", ""},
    kMemory{"memory_error", "peak_memory_gb"};
constexpr std::array<ErrorKind, 7> kKinds{{{"throughput_error", kThroughput},
                                           kRatio,
                                           kGain,
                                           kMemory,
                                           {"idle_error", "idle_s"},
                                           {"chunks_error", "peak_activation_chunks"},
                                           {"tp_share_error", "tp_communication_share"}}};

// Errors by the name of their kind.
struct ErrorSet : std::map<std::string_view, Errors> {
  [[nodiscard]] json to_json() const {
    json value;
    for (const ErrorKind& kind : kKinds) {
      const auto found = find(kind.name);
      const Errors errors = found == end() ? Errors() : found->second;
      value[std::string(kind.name) + "_mean"] = errors.mean();
      value[std::string(kind.name) + "_worst"] = errors.worst_json();
    }
    return value;
  }
};

// A scenario may run the same configuration at several unit costs.
std::string costs_of_layer(const json& unit_costs) {
  const auto sum = [&](std::initializer_list<const char*> keys) {
    double seconds = 0;
    for (const char* key : keys) seconds += unit_costs.value(key, 0.0);
    return shown("%g", seconds);
  };
  return ", a layer's F " + sum({"attn.F", "mlp.F"}) + " I " + sum({"attn.I", "mlp.I"}) + " W " +
         sum({"attn.W_early", "attn.W", "mlp.W_early", "mlp.W"}) + " all-reduces " +
         sum({"all_reduce", "all_reduce"});
}

bool has_costs_by_rank(const json& row) {
  const json& costs = row.value("unit_costs", json());
  return std::any_of(costs.begin(), costs.end(), [](const json& cost) { return cost.is_array(); });
}

std::string row_name(const json& row) {
  std::string name = row.at("schedule").get<std::string>();
  if (row.value("braid", "static") != "static") name += ", " + row.at("braid").get<std::string>() + " braids";
  if (row.value("merge_backward", false)) name += ", merged backward";
  if (row.value("sequence_parallel", json()) == true) name += ", sequence parallel";
  if (const json overlap = row.value("tp_overlap", json()); overlap.is_string() && overlap != "none")
    name += ", " + overlap.get<std::string>() + "'s overlap";
  if (row.value("contention", json()) == false) name += ", no contention";
  if (row.at("model").is_string()) name += ", " + row.at("model").get<std::string>();
  if (row.at("seq").is_number()) name += ", s " + json_text(row.at("seq"));
  name += ", tp" + json_text(row.at("tp")) + " pp" + json_text(row.at("pp"));
  for (const Axis& axis : kAxes)
    if (axis.ranks != &Strategy::tp && axis.ranks != &Strategy::pp && row.value(axis.name, 1) > 1)
      name += std::string(" ") + axis.name + json_text(row.at(axis.name));
  if (row.contains("cp_method")) name += " by " + row.at("cp_method").get<std::string>();
  name += ", m " + json_text(row.at("microbatches"));
  if (has_costs_by_rank(row)) return name + ", " + json_text(row.value("name", json()));
  return row.contains("unit_costs") && row["unit_costs"].is_object()
             ? name + costs_of_layer(row["unit_costs"])
             : name;
}

// The comparison of a record's rows with published rows.
struct Findings {
  ErrorSet predicted, calibrated;
  int calibration_rows = 0;
  json order = json::array();      // of pairs of schedules
  int pairs = 0, pairs_right = 0;  // of schedules that differ in the paper; of these, in the paper's order
  int verdicts = 0, verdicts_right = 0;  // on rows that fit or do not in the paper; of these, the paper's

  // Gains and memory alone are no prediction of an experiment.
  [[nodiscard]] bool predicts() const {
    return verdicts > 0 || predicted.size() > predicted.count(kGain.name) + predicted.count(kMemory.name);
  }
};

bool is_calibration(const json& row) { return row.at("calibration").get<bool>(); }

// The fields that memory depends on: the paper's memory does not depend on m.
std::string memory_key(const json& row) {
  return configuration_key(row, false) + row.at("schedule").get<std::string>();
}

// Whether a row agrees with a pattern of the list.
bool agrees_with_any(const json& row, const SharedJson& patterns) {
  return patterns && std::any_of(patterns->begin(), patterns->end(),
                                 [&](const json& pattern) { return agrees(row, pattern); });
}

void add_row_errors(Findings& findings, const json& rows, const std::optional<Comparison>& comparison) {
  std::set<std::string> memory_fitted;
  for (const json& row : rows) {
    if (comparison && agrees_with_any(row, comparison->memory_calibration))
      memory_fitted.insert(memory_key(row));
    if (!is_calibration(row) || row.at("published").is_null()) continue;
    ++findings.calibration_rows;
    memory_fitted.insert(memory_key(row));
  }
  for (const json& row : rows) {
    for (const ErrorKind& kind : kKinds) {
      const auto error = figure(row.at("difference"), std::string(kind.figure));
      if (!error) continue;
      // A row whose memory was fitted at one m is no prediction at another.
      const bool fitted =
          kind.name == kMemory.name ? memory_fitted.contains(memory_key(row)) : is_calibration(row);
      (fitted ? findings.calibrated : findings.predicted)[kind.name].add(*error, row_name(row));
    }
    // A row that may fit gives no verdict.
    if (const auto margin = figure(row, "memory_margin_gb");
        margin && row.at("published").contains(kFits) && row.value(kFits, "") != "maybe") {
      ++findings.verdicts;
      findings.verdicts_right += (*margin >= 0) == row.at("published").at(kFits).get<bool>();
    }
  }
}

// The row of each schedule, by configuration and number of microbatches. Rows that are equal in these count
// as separate configurations.
std::map<std::string, std::map<std::string, size_t>> by_configuration(const json& rows) {
  std::map<std::string, std::map<std::string, size_t>> found;
  for (size_t i = 0; i < rows.size(); ++i) {
    std::string key = configuration_key(rows[i], true);
    while (!found[key].emplace(rows[i].at("schedule"), i).second) key += "|again";
  }
  return found;
}

// The schedule that gains are over: the comparison's, or, if no row has it, 1F1B-I or the first schedule.
std::string baseline(const json& rows, const std::optional<Comparison>& comparison) {
  for (const std::string& name : {comparison ? comparison->gain_over : "", std::string("1f1b-i")})
    for (const json& row : rows)
      if (row.at("schedule") == name) return name;
  return rows.empty() ? "" : rows[0].at("schedule");
}

// The throughput of `row`, ours or published, over that of `base`.
std::optional<double> ratio(const json& row, const json& base) {
  const auto of = figure(row, kThroughput), over = figure(base, kThroughput);
  return of && over && *over != 0 ? std::optional(*of / *over) : std::nullopt;
}

json gain_of(const json& row, const json& base) {
  const auto ours = ratio(row, base), theirs = ratio(row.at("published"), base.at("published"));
  if (!ours && !theirs) return nullptr;
  const auto percent = [](const auto& value) { return value ? json(100 * (*value - 1)) : json(nullptr); };
  return {{"over", base.at("schedule")},
          {"percent", percent(ours)},
          {"published_percent", percent(theirs)},
          {"error_points", ours && theirs ? json(100 * (*ours - *theirs)) : json(nullptr)},
          {"calibration", is_calibration(row) || is_calibration(base)}};
}

// Two schedules in one configuration: their order, and the gain if it is the requested one.
void add_pair(Findings& findings, const json& rows, size_t a, size_t b,
              const std::optional<Comparison>& comparison) {
  const auto ours_a = figure(rows[a], kThroughput), theirs_a = figure(rows[a].at("published"), kThroughput);
  const auto ours_b = figure(rows[b], kThroughput), theirs_b = figure(rows[b].at("published"), kThroughput);
  if (!theirs_a || !theirs_b || !ours_a || !ours_b) return;
  const bool fitted = is_calibration(rows[a]) || is_calibration(rows[b]);
  const bool apart = std::max(*theirs_a, *theirs_b) / std::min(*theirs_a, *theirs_b) - 1 > kPairGap;
  const bool right = (*theirs_a - *theirs_b) * (*ours_a - *ours_b) > 0;
  findings.order.push_back({{"row", a}, {"other", b}, {"apart", apart}, {"right", right}});
  if (!fitted && apart) {
    ++findings.pairs;
    findings.pairs_right += right;
  }
  if (!comparison) return;
  for (const auto& [of, over] : {std::pair(a, b), std::pair(b, a)})
    if (rows[of].at("schedule") == comparison->gain_of && rows[over].at("schedule") == comparison->gain_over)
      if (const auto error = figure(rows[of].at("gain"), "error_points"))
        (fitted ? findings.calibrated : findings.predicted)[kGain.name].add(*error, row_name(rows[of]));
}

void add_pairs(Findings& findings, const json& rows, const std::optional<Comparison>& comparison) {
  for (const auto& [key, schedules] : by_configuration(rows))
    for (auto a = schedules.begin(); a != schedules.end(); ++a)
      for (auto b = std::next(a); b != schedules.end(); ++b)
        add_pair(findings, rows, a->second, b->second, comparison);
}

// What a row trains, on how many of which GPUs: rows that are equal in these differ in split, schedule and
// options.
std::string job_key(const json& row) {
  std::string key;
  for (const char* field : {"model", "cluster", "cluster_values", "gpus", "seq", "vision_tokens"})
    key += json_text(row.value(field, json())) + "|";
  double batch = 1;
  for (const char* field : {"microbatches", "microbatch_size", "dp"}) batch *= figure(row, field).value_or(1);
  return key + shown("%.0f", batch);
}

// The errors of the ratio of the throughputs of two predicted rows of one job.
void add_ratios(Findings& findings, const json& rows) {
  std::map<std::string, std::vector<const json*>> jobs;
  for (const json& row : rows)  // unit costs do not say of which job they are
    if (!is_calibration(row) && row.at("model").is_string() && figure(row.at("difference"), kThroughput))
      jobs[job_key(row)].push_back(&row);
  for (const auto& [key, job] : jobs)
    for (size_t a = 0; a < job.size(); ++a)
      for (size_t b = 0; b < a; ++b) {
        const json &of = job[a]->at("published"), &over = job[b]->at("published");
        const auto ours = ratio(*job[a], *job[b]), theirs = ratio(of, over);
        // Two rows of ours for one published row have no published ratio.
        if (of == over || !ours || !theirs || *ours == 0 || *theirs == 0) continue;
        const double off = *ours / *theirs;
        findings.predicted[kRatio.name].add(std::max(off, 1 / off) - 1,
                                            row_name(*job[b]) + " against " + row_name(*job[a]));
      }
}

// One criterion for each kind of error with a predicted row: no criterion is met by default.
json criteria_of(const Findings& findings, const Comparison& comparison) {
  json criteria = json::array();
  const auto add = [&](const char* what, const json& value, const json& tolerance, bool met) {
    criteria.push_back({{"mark", what}, {"value", value}, {"tolerance", tolerance}, {"met", met}});
  };
  for (const ErrorKind& kind : kKinds) {
    const auto found = findings.predicted.find(kind.name);
    if (found == findings.predicted.end()) continue;
    const Errors& errors = found->second;
    for (const auto& [of, value] :
         {std::pair("_mean", errors.sum / errors.count), std::pair("_worst", errors.worst)})
      if (const auto tolerance = comparison.tolerance.find(std::string(kind.name) + of);
          tolerance != comparison.tolerance.end())
        add(tolerance->first.c_str(), value, tolerance->second, value <= tolerance->second);
  }
  if (findings.pairs > 0)
    add("pairs_right", findings.pairs_right, findings.pairs, findings.pairs_right == findings.pairs);
  if (findings.verdicts > 0)
    add("memory_verdicts_right", findings.verdicts_right, findings.verdicts,
        findings.verdicts_right == findings.verdicts);
  return criteria;
}

// Adds the figures of `candidate`, a published row that matches `row`.
void compare_figures(const json& row, const json& candidate, json& published, json& difference) {
  for (const char* key : kFigures) {
    const auto theirs = figure(candidate, key);
    if (!theirs) continue;
    published[key] = *theirs;
    // If the published value is 0, 0 has no error, and any other value counts as 100 % off.
    if (const auto ours = figure(row, key))
      difference[key] = *theirs != 0 ? *ours / *theirs - 1 : *ours != 0 ? 1.0 : 0.0;
  }
  if (candidate.contains(kFits)) published[kFits] = candidate.at(kFits);
  if (candidate.contains("table")) published["tables"].push_back(candidate.at("table"));
}

}  // namespace

void Errors::add(double error, const std::string& row) {
  sum += std::abs(error);
  ++count;
  if (std::abs(error) >= worst) {
    worst = std::abs(error);
    worst_row = row;
  }
}

json Errors::mean() const { return count > 0 ? json(sum / count) : json(nullptr); }

json Errors::worst_json() const {
  return count > 0 ? json{{"error", worst}, {"row", worst_row}} : json(nullptr);
}

Comparison read_comparison(JsonInput input) {
  Comparison comparison;
  if (input.has("gain")) {
    JsonInput gain = input.object("gain");
    comparison.gain_of = gain.string("of");
    comparison.gain_over = gain.string("over");
    gain.done();
  }
  if (input.has("not_testable")) {
    comparison.not_testable = input.string("not_testable");
    if (comparison.not_testable.empty())
      throw input.error("not_testable", "is empty", "write why the rows are not to be judged, or remove it");
  }
  for (const auto& [name, patterns] : {std::pair("calibration", &comparison.calibration),
                                       std::pair("memory_calibration", &comparison.memory_calibration)}) {
    if (!input.has(name)) continue;
    for (const json& pattern : input.array(name))
      if (!pattern.is_object())
        throw input.error(name, "has an element that is not an object", "write {…} per pattern");
    *patterns = input.shared_value(name);
  }
  if (input.has("tolerance")) {
    JsonInput tolerance = input.object("tolerance");
    for (auto& [name, value] : comparison.tolerance)
      value = tolerance.number_or(name, value, 0,
                                  name.ends_with("_worst")       ? 10
                                  : name.starts_with(kGain.name) ? 100
                                                                 : 1);
    tolerance.done();
  }
  input.done();
  return comparison;
}

json to_json(const Comparison& comparison) {
  json value = {{"calibration", comparison.calibration ? *comparison.calibration : json::array()},
                {"tolerance", comparison.tolerance}};
  if (!comparison.gain_of.empty())
    value["gain"] = {{"of", comparison.gain_of}, {"over", comparison.gain_over}};
  if (comparison.memory_calibration) value["memory_calibration"] = *comparison.memory_calibration;
  if (!comparison.not_testable.empty()) value["not_testable"] = comparison.not_testable;
  return value;
}

void attach_published(json& rows, const std::string& folder, const std::optional<Comparison>& comparison) {
  const auto check = [&](const char* name, const SharedJson& patterns) {
    for (const json& pattern : patterns ? *patterns : json::array())
      if (std::none_of(rows.begin(), rows.end(), [&](const json& row) { return agrees(row, pattern); }))
        throw InputError(
            "", std::string("compare.") + name,
            json_text(pattern) + " agrees with no row, so that fitted rows would count as predicted",
            "name fields as the rows have them");
  };
  const Comparison given = comparison.value_or(Comparison());
  check("calibration", given.calibration);
  check("memory_calibration", given.memory_calibration);
  const std::vector<json> all = read_published(folder);
  for (json& row : rows) {
    json published = json::object(), difference = json::object();
    // No published row has layers or microbatches of different cost.
    const bool alike = !row.contains("layer_costs") && !row.contains("microbatch_costs");
    for (const json& candidate : all)
      if (alike && agrees(row, candidate)) compare_figures(row, candidate, published, difference);
    row["published"] = published.empty() ? json(nullptr) : published;
    row["difference"] = difference.empty() ? json(nullptr) : difference;
    row["calibration"] = agrees_with_any(row, given.calibration);
  }
}

void attach_gains(json& rows, const std::optional<Comparison>& comparison) {
  const std::string over = baseline(rows, comparison);
  for (json& row : rows) row["gain"] = nullptr;
  for (const auto& [key, schedules] : by_configuration(rows))
    if (const auto base = schedules.find(over); base != schedules.end())
      for (const auto& [name, place] : schedules)
        if (name != over) rows[place]["gain"] = gain_of(rows[place], rows[base->second]);
}

json summarise(const std::string& id, const json& record, const std::optional<Comparison>& comparison) {
  const json& rows = record.at("rows");
  Findings findings;
  add_row_errors(findings, rows, comparison);
  add_pairs(findings, rows, comparison);
  add_ratios(findings, rows);
  json line = {{"id", id},
               {"title", record.at("scenario").value("title", "")},
               {"evidence", record.at("evidence")},
               {"rows", rows.size()},
               {"calibration_rows", findings.calibration_rows},
               {"pairs_right", findings.pairs_right},
               {"pairs", findings.pairs},
               {"pairs_apart", kPairGap},
               {"order", findings.order},
               {"calibrated", findings.calibrated.to_json()}};
  line.update(findings.predicted.to_json());
  if (findings.verdicts > 0)
    line.update({{"memory_verdicts", findings.verdicts}, {"memory_verdicts_right", findings.verdicts_right}});
  const bool judged = comparison && comparison->not_testable.empty();
  if (judged && findings.predicts()) {
    const json criteria = criteria_of(findings, *comparison);
    const bool all =
        std::all_of(criteria.begin(), criteria.end(), [](const json& one) { return one.at("met"); });
    line["marks"] = criteria;
    line["verdict"] = all ? "reproduced" : "deviates";
    line["reason"] =
        all ? "every acceptance criterion is met" : "an acceptance criterion is missed; see marks";
  } else {
    line["verdict"] = "not testable here";
    line["reason"] = comparison && !judged
                         ? comparison->not_testable
                         : "there is no published figure for these rows, or no comparison asked";
  }
  return line;
}

}  // namespace stp
