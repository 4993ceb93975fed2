// Records side by side, on small ones written by hand.
#include "stp/report/record_comparison.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/refusal.h"

namespace stp {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

json row(const std::string& schedule, double step_s, const json& changes = json::object()) {
  json row = {{"schedule", schedule},
              {"model", "m"},
              {"cluster", "a"},
              {"seq", 128},
              {"microbatch_size", 1},
              {"tp", 4},
              {"pp", 2},
              {"cp", 1},
              {"dp", 1},
              {"microbatches", 8},
              {"contention", true},
              {"step_time_s", step_s},
              {"step_time_repeats_s", json::array({step_s})},
              {"throughput_samples_per_s", 8 / step_s},
              {"mfu", 0.5},
              {"peak_memory_gb", 20.0},
              {"ranks", json::array({{{"compute_s", 6.0}, {"pp_bubble_s", 1.5}, {"tp_bubble_s", 0.5}},
                                     {{"compute_s", 5.0}, {"pp_bubble_s", 2.5}, {"tp_bubble_s", 0.5}}})}};
  row.update(changes);
  return row;
}

json record(json rows, const std::string& evidence = "simulated") {
  return {{"scenario", {{"name", "s"}}}, {"evidence", evidence}, {"results", std::move(rows)}};
}

RecordFile read(const json& content, const std::string& path = "r.json") {
  return read_record(content, path);
}

json compare(const json& first, const json& second) {
  return compare_records({read(first), read(second, "t.json")});
}

const json& cell(const json& comparison, size_t row, size_t file) {
  return comparison.at("rows").at(row).at("cells").at(file);
}

TEST(RecordFile, HasTheFiguresOfItsRows) {
  const RecordFile file = read(record({row("stp", 4), row("zb-v", 5, {{"mfu", nullptr}})}, "measured"));
  EXPECT_EQ(file.evidence, Evidence::measured);
  ASSERT_EQ(file.rows.size(), 2);
  EXPECT_EQ(file.rows[0].throughput, 2);
  EXPECT_EQ(file.rows[0].pp_bubble, 1.5 / 8);  // of the rank that computes most
  EXPECT_EQ(file.rows[0].tp_bubble, 0.5 / 8);
  EXPECT_EQ(file.rows[1].mfu, std::nullopt);
}

TEST(RecordFile, IsRefusedWithTheFieldAtFault) {
  const auto why = [](const json& content) { return refusal([&] { read(content); }); };
  EXPECT_THAT(why(record(json::array())), AllOf(StartsWith("r.json: results: is empty"), HasSubstr("; ")));
  EXPECT_THAT(why(record(json::array({row("stp", 1)}), "guessed")),
              AllOf(StartsWith("r.json: evidence: \"guessed\" is none"), HasSubstr("measured")));
  EXPECT_THAT(why(record(json::array({row("stp", 1, {{"step_time_s", "1"}})}))),
              StartsWith("r.json: results[0].step_time_s: must be a number"));
  EXPECT_THAT(why(record(json::array({row("stp", 1, {{"schedule", 3}})}))),
              StartsWith("r.json: results[0].schedule: "));
  EXPECT_THAT(why(record(json::array({row("stp", 1, {{"ranks", json::array({{{"compute_s", 1}}})}})}))),
              StartsWith("r.json: results[0].ranks[0].pp_bubble_s: is missing"));
  EXPECT_THAT(why(record(json::array({row("stp", 1, {{"step_time_repeats_s", json::array({"x"})}})}))),
              StartsWith("r.json: results[0].step_time_repeats_s: "));
  json nameless = record(json::array({row("stp", 1)}));
  nameless["scenario"] = {{"title", "t"}};
  EXPECT_THAT(why(nameless), StartsWith("r.json: scenario.name: is missing"));
}

TEST(RecordComparison, SetsRowsOfTheSameThingSideBySideWhateverTheirOrder) {
  const json told = compare(record({row("stp", 4), row("zb-v", 5)}),
                            record({row("zb-v", 4, {{"cluster", "b"}}),
                                    row("stp", 8, {{"cluster", "b"}, {"peak_memory_gb", 30.0}})}));
  ASSERT_EQ(told.at("rows").size(), 2);
  EXPECT_EQ(cell(told, 0, 0).at("against_first"), nullptr);
  const json& stp = cell(told, 0, 1).at("against_first");
  EXPECT_DOUBLE_EQ(stp.at("throughput"), -0.5);
  EXPECT_DOUBLE_EQ(stp.at("step_time"), 1);
  EXPECT_DOUBLE_EQ(stp.at("peak_memory"), 0.5);
  EXPECT_DOUBLE_EQ(cell(told, 1, 1).at("against_first").at("step_time"), -0.2);
  // The cluster tells no two rows of a file apart: in it the files differ.
  EXPECT_EQ(told.at("differs"), (json{{{"field", "cluster"}, {"values", {"a", "b"}}}}));
  EXPECT_FALSE(told.at("rows")[0].at("configuration").contains("cluster"));
  EXPECT_EQ(told.at("predictions"), json::array());
}

TEST(RecordComparison, KeepsApartWhatTellsRowsOfOneFileApart) {
  const json off = {{"contention", false}};
  const json told =
      compare(record({row("stp", 4), row("stp", 3, off)}), record({row("stp", 6, off), row("stp", 5)}));
  ASSERT_EQ(told.at("rows").size(), 2);
  EXPECT_EQ(cell(told, 0, 1).at("step_time_s"), 5);
  EXPECT_EQ(cell(told, 1, 1).at("step_time_s"), 6);
  EXPECT_EQ(told.at("rows")[1].at("configuration").at("contention"), false);
}

TEST(RecordComparison, NumbersRowsThatNothingTellsApart) {
  const json told = compare(record({row("stp", 4), row("stp", 3)}), record({row("stp", 8), row("stp", 9)}));
  ASSERT_EQ(told.at("rows").size(), 2);
  EXPECT_DOUBLE_EQ(cell(told, 0, 1).at("against_first").at("step_time"), 1);
  EXPECT_DOUBLE_EQ(cell(told, 1, 1).at("against_first").at("step_time"), 2);
}

TEST(RecordComparison, ListsRowsThatOneFileLacks) {
  const json told =
      compare(record({row("stp", 4), row("gpipe", 9)}), record({row("stp", 4), row("zb-v", 5)}));
  ASSERT_EQ(told.at("rows").size(), 3);
  EXPECT_EQ(cell(told, 1, 1), nullptr);
  EXPECT_EQ(cell(told, 2, 0), nullptr);
  EXPECT_EQ(cell(told, 2, 1).at("against_first"), nullptr);
}

TEST(RecordComparison, SetsTwoSchedulesAgainstEachOtherWhereEachFileHasOne) {
  const json told = compare(record(json::array({row("1f1b-i", 4)})), record(json::array({row("stp", 2)})));
  ASSERT_EQ(told.at("rows").size(), 1);
  EXPECT_EQ(cell(told, 0, 0).at("schedule"), "1f1b-i");
  EXPECT_DOUBLE_EQ(cell(told, 0, 1).at("against_first").at("throughput"), 1);
}

TEST(RecordComparison, DoesNotAskForWhatAFileDoesNotKnow) {
  // Unit costs know neither model nor length.
  const json unit = {{"model", nullptr}, {"seq", nullptr}, {"cluster", nullptr}, {"contention", nullptr}};
  const json told = compare(record(json::array({row("stp", 4)})), record(json::array({row("stp", 5, unit)})));
  ASSERT_EQ(told.at("rows").size(), 1);
  EXPECT_FALSE(told.at("rows")[0].at("configuration").contains("model"));
  EXPECT_EQ(told.at("differs")[0], (json{{"field", "model"}, {"values", {"m", nullptr}}}));
}

TEST(RecordComparison, RefusesRecordsOfDifferentThings) {
  EXPECT_THAT(
      refusal([] {
        compare(record(json::array({row("stp", 4)})), record(json::array({row("stp", 4, {{"tp", 8}})})));
      }),
      AllOf(StartsWith("t.json: "), HasSubstr("no configuration in common with r.json"), HasSubstr("; ")));
}

TEST(RecordComparison, NeverComparesTwoEvidencesButAsAPrediction) {
  json measured = row("stp", 4);
  measured["step_time_repeats_s"] = {3.8, 3.9, 4.0, 4.0, 4.1, 4.2};
  json longer = row("zb-v", 5);
  longer["step_time_repeats_s"] = {4.8, 4.9, 5.0, 5.0, 5.1, 5.2};
  const json real = record({measured, longer}, "measured"),
             model = record({row("stp", 4.1), row("zb-v", 4.5)});
  for (const bool model_first : {true, false}) {
    const json told = model_first ? compare(model, real) : compare(real, model);
    EXPECT_EQ(cell(told, 0, 1).at("against_first"), nullptr);
    const json& stp = cell(told, 0, 1).at("prediction");
    EXPECT_DOUBLE_EQ(stp.at("predicted_step_s"), 4.1);
    EXPECT_DOUBLE_EQ(stp.at("actual_step_s"), 4.0);
    EXPECT_NEAR(stp.at("step_error"), 0.025, 1e-12);
    EXPECT_EQ(stp.at("within_interval"), true);
    EXPECT_EQ(cell(told, 1, 1).at("prediction").at("within_interval"), false);
    const json& errors = told.at("predictions").at(0);
    EXPECT_EQ(errors.at("predicted_evidence"), "simulated");
    EXPECT_EQ(errors.at("actual_evidence"), "measured");
    EXPECT_EQ(errors.at("predicted_by"), model_first ? "A" : "B");
    EXPECT_NEAR(errors.at("step_error_mean"), (0.025 + 0.1) / 2, 1e-12);
    EXPECT_NEAR(errors.at("step_error_worst"), -0.1, 1e-12);
    EXPECT_EQ(errors.at("within_interval"), 1);
    EXPECT_EQ(errors.at("intervals"), 2);
  }
}

TEST(RecordComparison, TestsRepeatedStepsAsOneFamily) {
  const auto repeated = [](double scale) {
    json rows = json::array();
    for (const char* schedule : {"stp", "zb-v"}) {
      json times = json::array();
      for (int i = 0; i < 12; ++i) times.push_back((1 + 0.001 * i) * (schedule[0] == 's' ? scale : 1));
      rows.push_back(row(schedule, 1, {{"step_time_repeats_s", times}}));
    }
    return record(rows, "measured");
  };
  const json told = compare(repeated(1), repeated(1.1));
  EXPECT_EQ(cell(told, 0, 1).at("against_first").at("verdict"), "slower");
  EXPECT_EQ(cell(told, 1, 1).at("against_first").at("verdict"), "same");
  EXPECT_EQ(told.at("rule").at("comparisons"), 2);
  EXPECT_EQ(cell(told, 0, 0).at("step_time_interval_s"),
            (json{1.002, 1.009}));  // of 1 … 1.011: the third from either end
  // One repeat is no sample.
  EXPECT_EQ(cell(compare(record(json::array({row("stp", 1)})), record(json::array({row("stp", 2)}))), 0, 1)
                .at("against_first")
                .at("verdict"),
            nullptr);
}

}  // namespace
}  // namespace stp
