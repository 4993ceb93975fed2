// Records, on small rows computed by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "stp/base/json_input.h"
#include "stp/report/record.h"
#include "stp/version.h"
#include "support/folder.h"
#include "support/refusal.h"

namespace stp {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

// ---- results ----

Result result(std::vector<double> step_times) {
  Result r;
  r.schedule = "stp";
  r.configuration.microbatches = 6;
  r.configuration.microbatch_size = 2;
  r.configuration.strategy.dp = 3;
  r.step_times_s = std::move(step_times);
  return r;
}

TEST(Result, HasSamplesOfAllReplicasPerMedianStepAndNoneWhereAStepTakesNoTime) {
  EXPECT_EQ(result({5, 1, 3}).throughput(), 6.0 * 2 * 3 / 3);
  EXPECT_EQ(result({0}).throughput(), std::nullopt);
}

TEST(Result, HasThePeakOfItsRanksWhereAllKnowTheirMemory) {
  Result r = result({1});
  r.ranks = {{1, 0, 0, 3, RankResult::Memory{2e9, 9e9, 9e9, 9e9}},
             {1, 0, 0, 3, RankResult::Memory{2.5e9, 1e9, 1e9, 1e9}}};
  EXPECT_DOUBLE_EQ(*r.peak_memory_gb(), 2.5);
  r.ranks.push_back({1, 0, 0, 3, std::nullopt});
  EXPECT_EQ(r.peak_memory_gb(), std::nullopt);
}

TEST(ResultJson, HoldsEveryFigure) {
  Result r = result({4, 1, 2});
  r.configuration.model = "m";
  r.configuration.cluster = "c";
  r.configuration.seq = 128;
  r.configuration.strategy.tp = 2;
  r.configuration.strategy.pp = 5;
  r.configuration.strategy.cp = 7;
  r.configuration.layers_per_chunk = {1, 2};
  r.configuration.placement = "v";
  r.configuration.name = "large";
  r.configuration.options =
      std::make_shared<const json>(json{{"release", "block"}, {"contention", true}, {"vision_tokens", 64}});
  r.configuration.strategy.offload = 0.5;
  r.mfu = 0.25;
  r.mfu_paper = 0.5;
  r.tp_communication_share = 0.125;
  r.ranks = {{1, 0.5, 0.25, 3, RankResult::Memory{2e9, 3e9, 4e9, 5e9, 1e9}}};
  const json expected = json::parse(R"({
      "schedule": "stp", "name": "large", "model": "m", "cluster": "c", "seq": 128,
      "tp": 2, "pp": 5, "cp": 7, "dp": 3, "zero": 0, "gpus": 210, "microbatches": 6, "microbatch_size": 2,
      "layers_per_chunk": [1, 2], "placement": "v", "release": "block", "vision_tokens": 64,
      "contention": true, "gradients": null, "recompute": null, "offloaded": true,
      "offload_ratio": 0.5, "sequence_parallel": null, "tp_overlap": null, "unit_costs": null,
      "idle_s": 1.0, "peak_activation_chunks": 3, "time_unit": "s", "step_time_s": 2.0,
      "step_time_repeats_s": [4.0, 1.0, 2.0], "step_time_spread_s": 3.0, "throughput_samples_per_s": 18.0,
      "mfu": 0.25, "mfu_paper": 0.5, "tp_communication_share": 0.125, "peak_memory_gb": 2.0,
      "ranks": [{"compute_s": 1.0, "pp_bubble_s": 0.5, "tp_bubble_s": 0.25, "peak_activation_bytes": 2e9,
                 "peak_activation_chunks": 3,
                 "memory_bytes": {"activations": 2e9, "weights": 3e9, "gradients": 4e9, "optimizer": 5e9,
                                  "host": 1e9}}]})");
  EXPECT_EQ(to_json(r), expected) << json::diff(to_json(r), expected);
}

TEST(ResultJson, HasAMarginWhereThereIsOne) {
  Result r = result({1});
  EXPECT_FALSE(to_json(r).contains("memory_margin_gb"));
  r.memory_margin_gb = -2.5;
  EXPECT_EQ(to_json(r).at("memory_margin_gb"), -2.5);
}

TEST(ResultJson, IsNullWhereThereIsNoFigure) {
  Result r = result({0});
  r.ranks = {{0, 0, 0, 1, std::nullopt}};
  const json row = to_json(r);
  EXPECT_EQ(r.peak_total_gb(), std::nullopt);
  for (const char* key :
       {"name", "model", "cluster", "seq", "contention", "gradients", "throughput_samples_per_s", "mfu",
        "mfu_paper", "tp_communication_share", "peak_memory_gb"})
    EXPECT_TRUE(row.at(key).is_null()) << key;
  for (const char* key : {"peak_activation_bytes", "memory_bytes"})
    EXPECT_TRUE(row.at("ranks")[0].at(key).is_null()) << key;
  EXPECT_EQ(row.at("time_unit"), "units");  // without a model there are no seconds
}

TEST(Record, FramesTheRowsWithScenarioEvidenceSystemAndProvenance) {
  const json record =
      make_record({{"id", 1}}, Evidence::emulated, {"stp", "run"}, "results", json::array({7}));
  EXPECT_EQ(record.at("scenario"), json({{"id", 1}}));
  EXPECT_EQ(record.at("evidence"), "emulated");
  EXPECT_EQ(record.at("results"), json::array({7}));
  EXPECT_TRUE(record.at("schema_version").is_string());
  const json& provenance = record.at("provenance");
  EXPECT_EQ(provenance.at("argv"), json::array({"stp", "run"}));
  EXPECT_EQ(provenance.at("version"), STP_VERSION);
  EXPECT_THAT(provenance.at("time").get<std::string>(), testing::MatchesRegex("....-..-..T..:..:..Z"));
  EXPECT_GT(record.at("system").at("host_processor_core_count"), 0);
}

TEST(Record, NamesTheEvidence) {
  EXPECT_EQ(to_string(Evidence::measured), "measured");
  EXPECT_EQ(to_string(Evidence::replayed), "replayed");
  EXPECT_EQ(to_string(Evidence::emulated), "emulated");
  EXPECT_EQ(to_string(Evidence::simulated), "simulated");
}

using NewFile = FolderTest;

TEST_F(NewFile, IsWrittenWhole) {
  const std::string path = folder_ + "/r.json", text = std::string(1 << 20, 'x') + '\0' + "end\n";
  write_new_file(path, text);
  EXPECT_EQ(read_file(path), text);
  write_new_file(folder_ + "/empty", "");
  EXPECT_EQ(std::filesystem::file_size(folder_ + "/empty"), 0U);
}

TEST_F(NewFile, IsRefusedWhereOneExistsWhichIsLeftAlone) {
  const std::string path = folder_ + "/r.json";
  write_new_file(path, "first");
  EXPECT_THAT(refusal([&] { write_new_file(path, "second"); }),
              AllOf(StartsWith(path + ": exists"), HasSubstr("never overwritten; ")));
  EXPECT_EQ(read_file(path), "first");
  // A link that leads nowhere is there too, and what it names is not made.
  std::filesystem::create_symlink(folder_ + "/elsewhere", folder_ + "/link");
  EXPECT_NE(refusal([&] { write_new_file(folder_ + "/link", "second"); }), "");
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/elsewhere"));
}

TEST_F(NewFile, IsRefusedWhereItCannotBe) {
  EXPECT_THAT(refusal([&] { write_new_file(folder_ + "/none/r.json", "x"); }),
              AllOf(StartsWith(folder_ + "/none/r.json: cannot be created"), HasSubstr("; ")));
  EXPECT_NE(refusal([&] { write_new_file(folder_, "x"); }), "");
}

}  // namespace
}  // namespace stp
