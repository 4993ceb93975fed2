// The comparison of records with published figures, on small rows computed by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "stp/base/json_input.h"
#include "stp/report/compare.h"
#include "support/folder.h"
#include "support/refusal.h"

namespace stp {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

// ---- comparison ----

SharedJson patterns(json array) { return std::make_shared<const json>(std::move(array)); }

TEST(ReadComparison, HasTheDesignsTolerancesByDefault) {
  const json plain = json::parse(R"({"gain": {"of": "a", "over": "b"}})");
  const Comparison comparison = read_comparison(JsonInput(plain, "s.json", "compare"));
  EXPECT_EQ(comparison.gain_of, "a");
  EXPECT_EQ(comparison.gain_over, "b");
  EXPECT_EQ(comparison.calibration, nullptr);
  EXPECT_EQ(comparison.tolerance.at("throughput_error_mean"), 0.03);
  EXPECT_EQ(comparison.tolerance.at("throughput_error_worst"), 0.09);
  EXPECT_EQ(comparison.tolerance.at("gain_error_points_mean"), 1.5);
  EXPECT_EQ(comparison.tolerance.at("memory_error_mean"), 0.05);
}

TEST(ReadComparison, ReadsWhatToJsonWrites) {
  Comparison comparison;
  comparison.gain_of = "a";
  comparison.gain_over = "b";
  comparison.calibration = patterns({{{"seq", 1}}, {{"tp", 2}, {"pp", 3}}});
  comparison.memory_calibration = patterns({{{"seq", 2}}});
  comparison.tolerance.at("throughput_error_mean") = 0.25;
  comparison.tolerance.at("throughput_error_worst") = 0.5;
  comparison.tolerance.at("gain_error_points_mean") = 7;
  comparison.tolerance.at("memory_error_mean") = 0.125;
  comparison.not_testable = "why";
  const json written = to_json(comparison);
  const Comparison read = read_comparison(JsonInput(written, "s.json"));
  EXPECT_EQ(read.gain_of, "a");
  EXPECT_EQ(read.gain_over, "b");
  EXPECT_EQ(*read.calibration, *comparison.calibration);
  EXPECT_EQ(*read.memory_calibration, *comparison.memory_calibration);
  EXPECT_EQ(read.tolerance, comparison.tolerance);
  EXPECT_EQ(read.not_testable, "why");
}

TEST(ReadComparison, RefusesByField) {
  const auto message = [](const char* text) {
    const json value = json::parse(text);
    return refusal([&] { read_comparison(JsonInput(value, "s.json", "compare")); });
  };
  EXPECT_EQ(message(R"({})"), "");  // no gain is compared
  EXPECT_THAT(message(R"({"not_testable": ""})"), StartsWith("s.json: compare.not_testable: is empty; "));
  EXPECT_THAT(message(R"({"gain": {"of": "a"}})"), StartsWith("s.json: compare.gain.over: is missing"));
  EXPECT_THAT(message(R"({"gain": {"of": "a", "over": "b", "under": 1}})"),
              StartsWith("s.json: compare.gain.under: is not"));
  EXPECT_THAT(message(R"({"gain": {"of": "a", "over": "b"}, "calibration": [1]})"),
              StartsWith("s.json: compare.calibration: "));
  EXPECT_THAT(message(R"({"gain": {"of": "a", "over": "b"}, "tolerance": {"memory": 1}})"),
              StartsWith("s.json: compare.tolerance.memory: is not"));
  EXPECT_THAT(message(R"({"gain": {"of": "a", "over": "b"}, "tolerance": {"memory_error_mean": 2}})"),
              HasSubstr("out of range"));
}

json row(const std::string& schedule, int m, double throughput, double memory = 0, int tp = 4) {
  json r = json::parse(R"({"model": "m", "cluster": "c", "seq": 128, "microbatch_size": 1, "pp": 2, "cp": 1,
      "dp": 1, "zero": 0, "mfu_paper": 0.5, "peak_memory_gb": null})");
  r["schedule"] = schedule;
  r["tp"] = tp;
  r["microbatches"] = m;
  r["throughput_samples_per_s"] = throughput;
  if (memory > 0) r["peak_memory_gb"] = memory;
  return r;
}

class Compared : public FolderTest {
 protected:
  Compared() {
    comparison_.gain_of = "new";
    comparison_.gain_over = "old";
  }
  // A published row: `fields` and their table.
  void publish(const json& rows, const std::string& file = "paper.json") const {
    static_cast<void>(write(file, json{{"source", "a paper"}, {"rows", rows}}.dump()));
  }
  json summary(json rows, bool with_comparison = true) const {
    const auto comparison = with_comparison ? std::optional(comparison_) : std::nullopt;
    attach_published(rows, folder_, comparison);
    attach_gains(rows, comparison);
    return summarise("id", {{"rows", rows}, {"scenario", {{"title", "A title"}}}, {"evidence", "simulated"}},
                     comparison);
  }
  Comparison comparison_;
};

TEST_F(Compared, AttachesThePublishedFiguresOfTheSameConfigurationAlone) {
  publish({{{"table", "T1"}, {"schedule", "new"}, {"tp", 4}, {"peak_memory_gb", 8}},
           {{"table", "T2"},
            {"schedule", "new"},
            {"tp", 4},
            {"microbatches", 6},
            {"throughput_samples_per_s", 5}},
           {{"table", "T3"}, {"schedule", "new"}, {"tp", 4}, {"microbatches", 7}, {"mfu_paper", 0.25}},
           {{"table", "T4"}, {"schedule", "new"}, {"tp", 4}, {"nodes", 3}, {"mfu_paper", 0.1}}});
  json rows = {row("new", 6, 6, 10), row("new", 7, 6), row("old", 6, 6, 10), row("new", 6, 6, 10, 8)};
  attach_published(rows, folder_, comparison_);
  EXPECT_EQ(rows[0]["published"],
            (json{{"peak_memory_gb", 8.0}, {"throughput_samples_per_s", 5.0}, {"tables", {"T1", "T2"}}}));
  EXPECT_EQ(rows[0]["difference"].size(), 2U);
  EXPECT_DOUBLE_EQ(rows[0]["difference"]["peak_memory_gb"], 0.25);
  EXPECT_DOUBLE_EQ(rows[0]["difference"]["throughput_samples_per_s"], 0.2);
  EXPECT_EQ(rows[1]["published"],
            (json{{"peak_memory_gb", 8.0}, {"mfu_paper", 0.25}, {"tables", {"T1", "T3"}}}));
  EXPECT_EQ(rows[1]["difference"], (json{{"mfu_paper", 1.0}}));  // its own memory is null
  for (const int other : {2, 3}) {
    EXPECT_TRUE(rows[other]["published"].is_null());
    EXPECT_TRUE(rows[other]["difference"].is_null());
  }
  for (const json& r : rows) EXPECT_EQ(r["calibration"], false);
}

// Records leave out some fields that are false.
TEST_F(Compared, TakesFalseForAFieldThatARowLeavesOut) {
  publish({{{"table", "T1"}, {"schedule", "new"}, {"post_validation", false}, {"mfu_paper", 0.25}},
           {{"table", "T2"}, {"schedule", "new"}, {"post_validation", true}, {"peak_memory_gb", 8}}});
  json rows = {row("new", 6, 6), row("new", 6, 6)};
  rows[1]["post_validation"] = true;
  attach_published(rows, folder_, comparison_);
  EXPECT_EQ(rows[0]["published"]["tables"], json({"T1"}));
  EXPECT_EQ(rows[1]["published"]["tables"], json({"T2"}));
}

TEST_F(Compared, AttachesNullsWhereNothingIsPublished) {
  json rows = {row("new", 6, 6, 10)};
  EXPECT_THROW(attach_published(rows, folder_ + "/none", std::nullopt), InputError);
  std::filesystem::create_directory(folder_ + "/none");
  attach_published(rows, folder_ + "/none", std::nullopt);
  EXPECT_TRUE(rows[0]["published"].is_null());
  EXPECT_TRUE(rows[0]["difference"].is_null());
  EXPECT_EQ(rows[0]["calibration"], false);
  comparison_.calibration = std::make_shared<json>(json{{{"schedule", "old"}}});
  const json line = summary({row("new", 6, 6, 10), row("old", 6, 5, 10)});
  EXPECT_EQ(line["calibration_rows"], 0);  // nothing was fitted to rows that nobody published
  EXPECT_EQ(line["verdict"], "not testable here");
  EXPECT_THAT(line["reason"].get<std::string>(), HasSubstr("no published figure"));
  for (const char* key : {"throughput_error_mean", "throughput_error_worst", "gain_error_points_mean",
                          "gain_error_points_worst", "memory_error_mean", "memory_error_worst"}) {
    EXPECT_TRUE(line.at(key).is_null()) << key;
    EXPECT_TRUE(line.at("calibrated").at(key).is_null()) << key;
  }
  EXPECT_EQ(line["pairs"], 0);
  EXPECT_EQ(line["rows"], 2);
  EXPECT_EQ(line["title"], "A title");
  EXPECT_EQ(line["evidence"], "simulated");
  EXPECT_FALSE(line.contains("marks"));
}

TEST_F(Compared, GainsAreOverTheBaselineOfTheSameConfiguration) {
  publish({{{"schedule", "new"}, {"throughput_samples_per_s", 9}},
           {{"schedule", "old"}, {"throughput_samples_per_s", 6}}});
  comparison_.calibration = std::make_shared<json>(json{{{"schedule", "old"}, {"microbatches", 7}}});
  const auto gains = [&](json rows) {
    attach_published(rows, folder_, comparison_);
    attach_gains(rows, comparison_);
    json found = json::array();
    for (const json& each : rows) found.push_back(each["gain"]);
    return found;
  };
  json named = row("new", 6, 10), fused = named;
  named["name"] = "apart";
  fused["implementation"] = "suite";
  const json found = gains({row("new", 6, 10), row("old", 6, 8), row("new", 7, 10), row("old", 7, 8), named,
                            row("new", 8, 1), fused});
  EXPECT_EQ(found[0], (json{{"over", "old"},
                            {"percent", 25.0},
                            {"published_percent", 50.0},
                            {"error_points", -25.0},
                            {"calibration", false}}));
  EXPECT_EQ(found[2]["calibration"], true);
  for (const int without : {1, 3, 4, 5, 6}) EXPECT_TRUE(found[without].is_null());
  // Without the comparison's baseline it is 1F1B-I, or the first.
  comparison_.calibration = nullptr;
  EXPECT_EQ(gains({row("new", 6, 10), row("1f1b-i", 6, 8)})[0]["over"], "1f1b-i");
  const json of_others = gains({row("first", 6, 10), row("second", 6, 11)});
  EXPECT_EQ(of_others[1]["over"], "first");
  EXPECT_TRUE(of_others[1]["published_percent"].is_null());
}

TEST_F(Compared, RefusesPublishedFilesThatHoldNoRows) {
  publish({1, 2}, "bad.json");
  json rows = {row("new", 6, 6)};
  EXPECT_THAT(refusal([&] { attach_published(rows, folder_, comparison_); }),
              testing::AllOf(StartsWith(folder_ + "/bad.json: rows: "), HasSubstr("not an object")));
}

// Published: new 10 and old 8 at m 6 (gain 1.25), new 11 and old 8.8 at m 12 (1.25 too). The rows of m 12
// calibrate.
class Errors : public Compared {
 protected:
  Errors() {
    publish({{{"schedule", "new"}, {"microbatches", 6}, {"throughput_samples_per_s", 10}},
             {{"schedule", "old"}, {"microbatches", 6}, {"throughput_samples_per_s", 8}},
             {{"schedule", "new"}, {"microbatches", 12}, {"throughput_samples_per_s", 11}},
             {{"schedule", "old"}, {"microbatches", 12}, {"throughput_samples_per_s", 8.8}},
             {{"schedule", "new"}, {"peak_memory_gb", 50}},
             {{"schedule", "old"}, {"peak_memory_gb", 40}}});
    comparison_.calibration = patterns({{{"microbatches", 12}}});
  }
};

TEST_F(Errors, OfCalibratedRowsStandApart) {
  // m 6: +2 % and −1 %, whose absolute mean is 1.5 %; m 12: +10 % and +10 %.
  const json line =
      summary({row("new", 6, 10.2), row("old", 6, 7.92), row("new", 12, 12.1), row("old", 12, 9.68)});
  EXPECT_EQ(line["calibration_rows"], 2);
  EXPECT_NEAR(line["throughput_error_mean"], 0.015, 1e-12);
  EXPECT_NEAR(line["throughput_error_worst"]["error"], 0.02, 1e-12);
  EXPECT_EQ(line["throughput_error_worst"]["row"], "new, m, s 128, tp4 pp2, m 6");
  EXPECT_NEAR(line["calibrated"]["throughput_error_mean"], 0.1, 1e-12);
  EXPECT_NEAR(line["gain_error_points_mean"], 100 * (10.2 / 7.92 - 1.25), 1e-9);
  EXPECT_NEAR(line["calibrated"]["gain_error_points_mean"], 0, 1e-9);
  EXPECT_EQ(line["gain_error_points_worst"]["row"], "new, m, s 128, tp4 pp2, m 6");
  EXPECT_NEAR(line["ratio_error_mean"], 1.02 / 0.99 - 1, 1e-12);
  EXPECT_TRUE(line["calibrated"]["ratio_error_mean"].is_null());
  EXPECT_EQ(line["pairs"], 1);  // that of m 6
  EXPECT_EQ(line["pairs_right"], 1);
}

// Three ways to train 12 samples on 8 GPUs, and one to train 24.
TEST_F(Errors, OfRatiosAreOfTwoRowsOfOneJob) {
  comparison_.calibration = nullptr;
  json of_two_replicas = row("new", 6, 11, 0, 2);
  of_two_replicas["dp"] = 2;
  json rows = {row("new", 12, 12.1), row("old", 12, 9.68), of_two_replicas, row("new", 6, 8)};
  for (json& each : rows) each["gpus"] = 8;
  const json line = summary(rows);  // +10 % twice, +10 % of 10; −20 %
  EXPECT_NEAR(line["throughput_error_mean"], 0.125, 1e-12);
  EXPECT_NEAR(line["ratio_error_mean"], 0, 1e-12);
  rows.push_back(row("new", 12, 30));  // another variant of ours, for the same published row
  rows.back()["gpus"] = 8;
  rows.back()["tp"] = 8;
  EXPECT_NEAR(summary(rows)["ratio_error_mean"], 2 * (30 / 12.1 - 1) / 5, 1e-9) << "not against the first";
  rows.back()["model"] = nullptr;  // of unit costs
  rows.push_back(row("old", 12, 1));
  rows.back()["gpus"] = 8;
  rows.back()["model"] = nullptr;
  EXPECT_NEAR(summary(rows)["ratio_error_mean"], 0, 1e-12);
  rows.erase(5);
  rows.erase(4);
  rows[1]["throughput_samples_per_s"] = 0;
  EXPECT_NEAR(summary(rows)["ratio_error_mean"], 0, 1e-12);
  rows[1]["throughput_samples_per_s"] = 8.8;  // right, so 1.1 below both others
  const json worse = summary(rows);
  EXPECT_NEAR(worse["ratio_error_mean"], 0.2 / 3, 1e-12);
  EXPECT_NEAR(worse["ratio_error_worst"]["error"], 0.1, 1e-12);
  EXPECT_EQ(worse["ratio_error_worst"]["row"],
            "old, m, s 128, tp4 pp2, m 12 against new, m, s 128, tp2 pp2 dp2, m 6");
}

TEST_F(Errors, NameTheUnitCostsOfTheirRow) {
  json worst = row("new", 6, 10.2);
  worst["unit_costs"] = {{"attn.F", 0.125}, {"mlp.F", 0.125}, {"attn.I", 0.15},      {"mlp.I", 0.15},
                         {"attn.W", 0.1},   {"mlp.W", 0.05},  {"mlp.W_early", 0.05}, {"all_reduce", 0.03125}};
  EXPECT_EQ(summary({worst, row("old", 6, 8), row("new", 12, 11)})["throughput_error_worst"]["row"],
            "new, m, s 128, tp4 pp2, m 6, a layer's F 0.25 I 0.3 W 0.2 all-reduces 0.0625");
}

TEST_F(Errors, OfMemoryFittedAtOneNumberOfMicrobatchesAreNoPredictionAtAnother) {
  // 10 % off at tp 4, where m 12 calibrated; 20 % off at tp 8, where nothing did.
  const json line = summary(
      {row("new", 6, 10, 55), row("new", 12, 11, 55), row("new", 6, 10, 60, 8), row("old", 6, 8, 40, 8)});
  EXPECT_EQ(line["calibration_rows"], 1);
  EXPECT_NEAR(line["memory_error_mean"], 0.1, 1e-12);  // 20 % and 0 %, both of tp 8
  EXPECT_NEAR(line["memory_error_worst"]["error"], 0.2, 1e-12);
  EXPECT_EQ(line["memory_error_worst"]["row"], "new, m, s 128, tp8 pp2, m 6");
  EXPECT_NEAR(line["calibrated"]["memory_error_mean"], 0.1, 1e-12);
}

TEST_F(Errors, OfMemoryFittedForOneScheduleLeaveAnotherAPrediction) {
  comparison_.calibration = patterns({{{"microbatches", 12}, {"schedule", "new"}}});
  const json line = summary({row("new", 6, 10, 55), row("new", 12, 11, 55), row("old", 6, 8, 50)});
  EXPECT_NEAR(line["memory_error_mean"], 0.25, 1e-12);
  EXPECT_NEAR(line["calibrated"]["memory_error_mean"], 0.1, 1e-12);
}

TEST_F(Errors, OfMemoryThatAModelWasCompletedWithAreNoPredictionAndOfItsThroughputAre) {
  comparison_.calibration = nullptr;
  comparison_.memory_calibration = patterns({{{"tp", 4}}});
  const json line = summary({row("new", 6, 10.2, 55), row("new", 6, 10, 60, 8)});
  EXPECT_NEAR(line["memory_error_mean"], 0.2, 1e-12);
  EXPECT_NEAR(line["calibrated"]["memory_error_mean"], 0.1, 1e-12);
  EXPECT_NEAR(line["throughput_error_mean"], 0.01, 1e-12);  // 2 % and 0 %
  EXPECT_EQ(line["calibration_rows"], 0);
  comparison_.memory_calibration = patterns({{{"tensor", 4}}});
  EXPECT_THAT(refusal([&] { summary({row("new", 6, 11)}); }), HasSubstr("compare.memory_calibration"));
}

TEST_F(Errors, OfAGainWithOneCalibratedRowAreNoPrediction) {
  comparison_.calibration = patterns({{{"microbatches", 6}, {"schedule", "old"}}});
  const json line = summary({row("new", 6, 10.2), row("old", 6, 8)});
  EXPECT_TRUE(line["gain_error_points_mean"].is_null());
  EXPECT_NEAR(line["calibrated"]["gain_error_points_mean"], 2.5, 1e-9);
  EXPECT_EQ(line["pairs"], 0);
}

TEST_F(Errors, ACalibrationPatternThatAgreesWithNoRowIsRefused) {
  comparison_.calibration = patterns({{{"microbatch", 12}}});  // a typo for microbatches
  EXPECT_THAT(refusal([&] { summary({row("new", 6, 11)}); }), HasSubstr("agrees with no row"));
}

using Pairs = Compared;

TEST_F(Pairs, CountOnlyWhereThePaperSetsThemApartByMoreThanTwoPercent) {
  publish({{{"schedule", "a"}, {"throughput_samples_per_s", 100}},
           {{"schedule", "b"}, {"throughput_samples_per_s", 101.9}},
           {{"schedule", "c"}, {"throughput_samples_per_s", 110}}});
  // a–b are 1.9 % apart and do not count; a–c and b–c do. Ours has b above c: one of two right.
  const json line = summary({row("a", 6, 100), row("b", 6, 120), row("c", 6, 110)});
  EXPECT_EQ(line["pairs"], 2);
  EXPECT_EQ(line["pairs_right"], 1);
  EXPECT_EQ(line["order"][0], (json{{"row", 0}, {"other", 1}, {"apart", false}, {"right", true}}));
  EXPECT_EQ(line["order"][2], (json{{"row", 1}, {"other", 2}, {"apart", true}, {"right", false}}));
  // Equal ones have no order.
  EXPECT_EQ(summary({row("a", 6, 100), row("c", 6, 100)})["pairs_right"], 0);
  EXPECT_TRUE(line["gain_error_points_mean"].is_null());
}

TEST_F(Pairs, CountTheSameWhateverTheSchedulesAreCalled) {
  // 98.01 and 100: the faster is 2.03 % above the slower, the slower 1.99 % below the faster.
  const auto pairs = [&](const std::string& slow, const std::string& fast) {
    publish({{{"schedule", slow}, {"throughput_samples_per_s", 98.01}},
             {{"schedule", fast}, {"throughput_samples_per_s", 100}}});
    return summary({row(slow, 6, 98), row(fast, 6, 100)})["pairs"].get<int>();
  };
  EXPECT_EQ(pairs("a", "b"), pairs("b", "a"));
}

TEST_F(Pairs, AreOfOneConfiguration) {
  publish({{{"schedule", "a"}, {"throughput_samples_per_s", 100}},
           {{"schedule", "b"}, {"throughput_samples_per_s", 110}}});
  EXPECT_EQ(summary({row("a", 6, 100), row("b", 7, 110)})["pairs"], 0);
  EXPECT_EQ(summary({row("a", 6, 100), row("b", 6, 110, 0, 8)})["pairs"], 0);
  EXPECT_EQ(summary({row("a", 6, 100), row("b", 6, 110)})["pairs"], 1);
}

TEST_F(Errors, OfTheGainDoNotDependOnTheNamesOrder) {
  comparison_.calibration = nullptr;
  const double error = summary({row("new", 6, 10.2), row("old", 6, 8)})["gain_error_points_mean"];
  EXPECT_NEAR(error, 2.5, 1e-9);
  std::swap(comparison_.gain_of, comparison_.gain_over);
  const double other = summary({row("new", 6, 10.2), row("old", 6, 8)})["gain_error_points_mean"];
  EXPECT_NEAR(other, 100 * std::abs(8 / 10.2 - 0.8), 1e-9);
}

using Verdict = Errors;

TEST_F(Verdict, IsReproducedWhereEveryCriterionIsMet) {
  comparison_.calibration = nullptr;
  const json line = summary({row("new", 6, 10.1, 51), row("old", 6, 8.1, 41)});
  EXPECT_EQ(line["verdict"], "reproduced");
  ASSERT_EQ(line["marks"].size(), 5U);
  for (const json& one : line["marks"]) EXPECT_EQ(one["met"], true) << one;
  EXPECT_EQ(line["marks"][0]["tolerance"], 0.03);
}

TEST_F(Verdict, DeviatesWhereAnyOneCriterionIsMissed) {
  comparison_.calibration = nullptr;
  const auto missed = [&](const json& rows) {
    const json line = summary(rows);
    EXPECT_EQ(line["verdict"], "deviates");
    std::vector<std::string> names;
    for (const json& one : line["marks"])
      if (!one["met"].get<bool>()) names.push_back(one["mark"]);
    return names;
  };
  EXPECT_THAT(missed({row("new", 6, 10.5, 50), row("old", 6, 8.4, 40)}),
              ElementsAre("throughput_error_mean"));
  EXPECT_THAT(missed({row("new", 6, 10.2, 50), row("old", 6, 8, 40)}), ElementsAre("gain_error_points_mean"));
  EXPECT_THAT(missed({row("new", 6, 10, 53), row("old", 6, 8, 42.5)}), ElementsAre("memory_error_mean"));
  // One row far off, which the mean does not show.
  comparison_.tolerance.at("throughput_error_mean") = comparison_.tolerance.at("memory_error_mean") = 1;
  comparison_.tolerance.at("gain_error_points_mean") = 100;
  EXPECT_THAT(missed({row("new", 6, 11, 50), row("old", 6, 8, 40)}), ElementsAre("throughput_error_worst"));
  comparison_.tolerance.at("throughput_error_worst") = 1;
  comparison_.tolerance.at("gain_error_points_mean") = 100;
  EXPECT_THAT(missed({row("new", 6, 8, 50), row("old", 6, 8.5, 40)}), ElementsAre("pairs_right"));
}

TEST_F(Verdict, JudgesTheShareOfCommunicationWhereOneIsPublished) {
  comparison_ = {};
  publish({{{"table", "Figure 1"}, {"tp", 8}, {"tp_communication_share", 0.25}}}, "figure.json");
  json ours = row("old", 99, 1, 0, 8);
  ours["tp_communication_share"] = 0.27;
  const json line = summary({ours});
  EXPECT_NEAR(line.at("tp_share_error_mean").get<double>(), 0.08, 1e-9);
  EXPECT_EQ(line.at("verdict"), "reproduced");
  comparison_.tolerance.at("tp_share_error_mean") = 0.07;
  EXPECT_EQ(summary({ours}).at("verdict"), "deviates");
}

TEST_F(Verdict, JudgesWhetherRowsFitIntoMemory) {
  publish({{{"schedule", "new"}, {"fits", false}}, {{"schedule", "old"}, {"fits", true}}});
  comparison_.calibration = nullptr;
  const auto with_margin = [&](const char* schedule, double gb) {
    json one = row(schedule, 6, 10);
    one["memory_margin_gb"] = gb;
    return one;
  };
  const json right = summary({with_margin("new", -0.1), with_margin("old", 0)});
  EXPECT_EQ(std::pair(right["memory_verdicts"], right["memory_verdicts_right"]), std::pair(json(2), json(2)));
  EXPECT_EQ(right["verdict"], "reproduced");
  const json wrong = summary({with_margin("new", 0.1), with_margin("old", 0)});
  EXPECT_EQ(wrong["memory_verdicts_right"], 1);
  EXPECT_EQ(wrong["verdict"], "deviates");
  EXPECT_EQ(wrong["marks"][0]["mark"], "memory_verdicts_right");
  json may_fit = with_margin("new", 0.1);
  may_fit["fits"] = "maybe";
  EXPECT_EQ(summary({may_fit, with_margin("old", 0)})["memory_verdicts"], 1);
  // Without a margin there is nothing to judge by.
  EXPECT_FALSE(summary({row("new", 6, 10)}).contains("memory_verdicts"));
}

TEST_F(Verdict, IsNotTestableWhereTheScenarioSaysWhy) {
  comparison_.calibration = nullptr;
  comparison_.not_testable = "a reason";
  const json line = summary({row("new", 6, 11), row("old", 6, 8)});
  EXPECT_EQ(line.at("verdict"), "not testable here");
  EXPECT_EQ(line.at("reason"), "a reason");
  EXPECT_FALSE(line.contains("marks"));
  EXPECT_FALSE(line.at("throughput_error_mean").is_null());  // reported anyway
}

TEST_F(Verdict, IsNotTestableWithoutAComparisonOrWithCalibratedRowsAlone) {
  EXPECT_EQ(summary({row("new", 6, 10), row("old", 6, 8)}, false)["verdict"], "not testable here");
  EXPECT_EQ(summary({row("new", 12, 11), row("old", 12, 8.8)})["verdict"], "not testable here");
}

}  // namespace
}  // namespace stp
