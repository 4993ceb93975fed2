#include "overlap_pairs.h"

#include <limits>
#include <nlohmann/json.hpp>

#include "stp/base/json_input.h"
#include "stp/cost/gemm.h"
#include "stp/cost/overlap.h"
#include "stp/report/compare.h"

namespace stp {

// Structs whose fields have their names in the record.
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(OverlapPair::Published, gemm_s, all_reduce_s, serial_s, together_s)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(OverlapFigures, together_s, compute_slowdown, communication_slowdown,
                                   compute_rate, communication_rate, exposed_s, exposed_share, saved_s)

namespace {

using nlohmann::json;

constexpr double kMilli = 1e-3;

OverlapPair read_pair(JsonInput input, const HardwareProfile& profile) {
  OverlapPair pair;
  pair.name = input.string("name");
  JsonInput gemm = input.object("gemm");
  pair.gemm.m = gemm.integer("m", 1);
  pair.gemm.n = gemm.integer("n", 1);
  pair.gemm.k = gemm.integer("k", 1);
  gemm.done();
  JsonInput all_reduce = input.object("all_reduce");
  pair.bytes = all_reduce.number("mib", 1e-6, 1e6) * (1 << 20);
  pair.ranks = all_reduce.integer("ranks", 2, profile.gpus_per_node);
  all_reduce.done();
  if (input.has("published")) {
    JsonInput published = input.object("published");
    const auto milliseconds = [&](const char* key) { return published.number(key, 1e-9, 1e9) * kMilli; };
    pair.published = {milliseconds("gemm_ms"), milliseconds("all_reduce_ms"), milliseconds("serial_ms"),
                      milliseconds("together_ms")};
    published.done();
  }
  input.done();
  return pair;
}

// Predicted over published, less one.
json difference(double predicted, double published) { return predicted / published - 1; }

// The published times with figures derived from two times alone and one together. The longer op is assumed to
// end last; the slowdown of the shorter op is unknown.
json published_json(const OverlapPair::Published& published) {
  const auto& [gemm_s, all_reduce_s, serial_s, together_s] = published;
  json value = published;
  value.update({{"compute_slowdown", nullptr},
                {"communication_slowdown", nullptr},
                {"exposed_s", together_s - gemm_s},
                {"saved_s", serial_s - together_s}});
  if (gemm_s >= all_reduce_s) value["compute_slowdown"] = difference(together_s, gemm_s);
  if (gemm_s <= all_reduce_s) value["communication_slowdown"] = difference(together_s, all_reduce_s);
  return value;
}

json row_of(const OverlapPair& pair, const HardwareProfile& profile) {
  const auto together = [&](double gemm_s, double all_reduce_s) {
    return simulated_overlap(gemm_s, all_reduce_s,
                             {profile.contention_compute, profile.contention_all_reduce});
  };
  const double gemm_s = gemm_seconds(profile, pair.gemm);
  const double all_reduce_s = all_reduce_seconds(profile, pair.bytes, pair.ranks);
  const OverlapFigures of_shapes = together(gemm_s, all_reduce_s);
  json row = {{"name", pair.name},
              {"gemm", {{"m", pair.gemm.m}, {"n", pair.gemm.n}, {"k", pair.gemm.k}}},
              {"all_reduce", {{"bytes", pair.bytes}, {"ranks", pair.ranks}}},
              {"gemm_s", gemm_s},
              {"all_reduce_s", all_reduce_s},
              {"serial_s", gemm_s + all_reduce_s},
              {"figures", of_shapes},
              {"published", nullptr},
              {"difference", nullptr},
              {"from_published_times", nullptr}};
  if (!pair.published) return row;
  const auto& published = *pair.published;
  row["published"] = published_json(published);
  row["difference"] = {{"gemm_s", difference(gemm_s, published.gemm_s)},
                       {"all_reduce_s", difference(all_reduce_s, published.all_reduce_s)},
                       {"serial_s", difference(gemm_s + all_reduce_s, published.serial_s)},
                       {"together_s", difference(of_shapes.together_s, published.together_s)}};
  const OverlapFigures of_times = together(published.gemm_s, published.all_reduce_s);
  row["from_published_times"] = of_times;
  row["from_published_times"]["together_error"] = difference(of_times.together_s, published.together_s);
  return row;
}

}  // namespace

bool is_pairs_scenario(const std::string& word) {
  return read_json_file(scenario_path(word)).contains("pairs");
}

PairsScenario read_pairs_scenario(const std::string& word, const Changes& changes) {
  const std::string path = scenario_path(word);
  json content = read_json_file(path);
  changes.apply_to_scenario(content);
  JsonInput input(content, path);
  input.collect_missing();
  PairsScenario scenario;
  scenario.file = path;
  scenario.name = read_scenario_name(input);
  scenario.title = changes.title(input.string_or("title", scenario.name), scenario.name);
  scenario.calibrated = input.string_or("calibrated", "");
  input.ignore("comment");
  read_scenario_order(input);
  input.ignore("clusters");                                          // in the scenario of a record
  scenario.profile.gpus_per_node = std::numeric_limits<int>::max();  // no cluster limits it
  if (input.has("cluster")) {
    scenario.cluster = read_named_data(input, "cluster", "profiles", changes);
    scenario.profile = read_profile(*scenario.cluster.content, scenario.cluster.path);
  } else {
    input.value("cluster");
  }
  if (input.size("pairs") == 0) throw input.error("pairs", "is empty", "write at least one pair");
  scenario.pairs_as_read = input.shared_value("pairs");
  for (size_t i = 0; i < input.size("pairs"); ++i) {
    JsonInput pair = input.element("pairs", i);
    scenario.pairs.push_back(read_pair(pair, scenario.profile));
    for (size_t j = 0; j < i; ++j)
      if (scenario.pairs[j].name == scenario.pairs[i].name)
        throw pair.error("name", "\"" + scenario.pairs[i].name + "\" is given twice",
                         "give each pair its own name");
  }
  input.done();
  changes.refuse_unread("model", path);
  return scenario;
}

json PairsScenario::as_run() const {
  json scenario = {{"name", name},
                   {"title", title},
                   {"cluster", cluster.name},
                   {"pairs", *pairs_as_read},
                   {"clusters", {{cluster.name, *cluster.content}}}};
  if (!calibrated.empty()) scenario["calibrated"] = calibrated;
  return scenario;
}

json simulate_pairs(const PairsScenario& scenario) {
  json rows = json::array();
  for (const OverlapPair& pair : scenario.pairs) rows.push_back(row_of(pair, scenario.profile));
  return rows;
}

json summarise_pairs(const PairsScenario& scenario, const json& record) {
  Errors together;
  for (const json& row : record.at("pairs"))
    if (const json& of_times = row.at("from_published_times"); !of_times.is_null())
      together.add(of_times.at("together_error"), row.at("name"));
  // An empty comparison line, then the fields of pairs.
  json line = summarise(
      scenario.name,
      {{"rows", json::array()}, {"scenario", record.at("scenario")}, {"evidence", record.at("evidence")}},
      std::nullopt);
  const bool fitted = !scenario.calibrated.empty();
  line["rows"] = scenario.pairs.size();
  line["calibration_rows"] = fitted ? together.count : 0;
  json& errors = fitted ? line["calibrated"] : line;
  line["overlap_error_mean"] = line["overlap_error_worst"] = nullptr;
  if (together.count == 0) return line;
  errors["overlap_error_mean"] = together.mean();
  errors["overlap_error_worst"] = together.worst_json();
  const double worst = together.worst;
  const bool met = worst <= kOverlapTolerance;
  line["marks"] = json::array(
      {{{"mark", "overlap_error_worst"}, {"value", worst}, {"tolerance", kOverlapTolerance}, {"met", met}}});
  // Values fitted to the pairs agree with them in any case.
  line["verdict"] = !met ? "deviates" : fitted ? "consistent (calibrated)" : "reproduced";
  line["reason"] = std::string(met ? "every acceptance criterion is met"
                                   : "an acceptance criterion is missed; see marks") +
                   (fitted ? "; calibrated: " + scenario.calibrated : "");
  return line;
}

}  // namespace stp
