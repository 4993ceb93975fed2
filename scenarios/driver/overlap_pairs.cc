#include "overlap_pairs.h"

#include "scenario.h"
#include "stp/base/data.h"
#include "stp/base/json_input.h"
#include "stp/cost/gemm.h"
#include "stp/simulate/simulate.h"

namespace stp {
namespace {

using nlohmann::json;

constexpr double kMilli = 1e-3, kMebi = 1 << 20;

OverlapPair read_pair(JsonInput input, const HardwareProfile& profile) {
  OverlapPair pair;
  pair.name = input.string("name");
  JsonInput gemm = input.object("gemm");
  pair.gemm.m = gemm.integer("m", 1);
  pair.gemm.n = gemm.integer("n", 1);
  pair.gemm.k = gemm.integer("k", 1);
  gemm.done();
  JsonInput all_reduce = input.object("all_reduce");
  pair.bytes = all_reduce.number("mib", 1e-6, 1e6) * kMebi;
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

// A rank's compute op and its all-reduce, both ready at the start.
OverlapFigures together(double compute_s, double communication_s, const HardwareProfile& profile) {
  Program program{{"pair", Placement::loop(1, 1), 1, {{}}}, {}, {}, {}, {}, {}, {}};
  program.streams = {{StreamKind::compute, 0, -1}, {StreamKind::tp, 0, -1}};
  program.ops = {{.kind = OpKind::compute, .block = -1, .stream = 0},
                 {.kind = OpKind::all_reduce, .block = -1, .stream = 1}};
  program.depends_begin = {0, 0, 0};
  program.rank_begin = {0, 2};
  const double seconds[] = {compute_s, communication_s};
  const Timeline timeline =
      simulate(program, seconds, {profile.contention_compute, profile.contention_all_reduce});
  return overlap_figures({compute_s, communication_s, timeline.end[0], timeline.end[1]});
}

json figures_json(const OverlapFigures& figures) {
  return {{"together_s", figures.together_s},
          {"compute_slowdown", figures.compute_slowdown},
          {"communication_slowdown", figures.communication_slowdown},
          {"compute_rate", figures.compute_rate},
          {"communication_rate", figures.communication_rate},
          {"exposed_s", figures.exposed_s},
          {"exposed_share", figures.exposed_share},
          {"saved_s", figures.saved_s}};
}

}  // namespace

bool is_pairs_scenario(const std::string& word) {
  return read_json_file(scenario_path(word)).contains("pairs");
}

PairsScenario read_pairs_scenario(const std::string& word) {
  const std::string path = scenario_path(word);
  PairsScenario scenario{.file = path,
                         .name = {},
                         .title = {},
                         .profile = {},
                         .pairs = {},
                         .as_read = read_json_file(path),
                         .profile_json = {}};
  JsonInput input(scenario.as_read, path);
  scenario.name = read_scenario_name(input);
  scenario.title = input.string_or("title", scenario.name);
  input.ignore("comment");
  const std::string cluster = input.string("cluster");
  const std::string profile_file = find_data_file(cluster, "lib/cluster/profiles", path, "cluster");
  scenario.profile = read_profile(profile_file);
  scenario.profile_json = read_json_file(profile_file);
  const json& pairs = input.array("pairs");
  if (pairs.empty()) throw input.error("pairs", "is empty", "write at least one pair");
  for (size_t i = 0; i < pairs.size(); ++i)
    scenario.pairs.push_back(
        read_pair(JsonInput(pairs[i], path, "pairs[" + std::to_string(i) + "]"), scenario.profile));
  input.done();
  return scenario;
}

OverlapPrediction predict_overlap(const OverlapPair& pair, const HardwareProfile& profile) {
  OverlapPrediction prediction{.gemm_s = gemm_seconds(profile, pair.gemm),
                               .all_reduce_s = all_reduce_seconds(profile, pair.bytes, pair.ranks),
                               .figures = {},
                               .from_published = {}};
  prediction.figures = together(prediction.gemm_s, prediction.all_reduce_s, profile);
  if (pair.published)
    prediction.from_published = together(pair.published->gemm_s, pair.published->all_reduce_s, profile);
  return prediction;
}

json to_json(const OverlapPair& pair, const OverlapPrediction& prediction) {
  json row = {{"name", pair.name},
              {"gemm", {{"m", pair.gemm.m}, {"n", pair.gemm.n}, {"k", pair.gemm.k}}},
              {"all_reduce", {{"bytes", pair.bytes}, {"ranks", pair.ranks}}},
              {"gemm_s", prediction.gemm_s},
              {"all_reduce_s", prediction.all_reduce_s},
              {"serial_s", prediction.gemm_s + prediction.all_reduce_s},
              {"figures", figures_json(prediction.figures)},
              {"published", nullptr},
              {"from_published_times", nullptr}};
  if (pair.published) {
    const auto& published = *pair.published;
    row["published"] = {{"gemm_s", published.gemm_s},
                        {"all_reduce_s", published.all_reduce_s},
                        {"serial_s", published.serial_s},
                        {"together_s", published.together_s}};
    json figures = figures_json(*prediction.from_published);
    figures["together_error"] = prediction.from_published->together_s / published.together_s - 1;
    row["from_published_times"] = figures;
    row["together_error"] = prediction.figures.together_s / published.together_s - 1;
  }
  return row;
}

}  // namespace stp
