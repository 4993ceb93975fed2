// Files of Google Benchmark, as written by hand: what is read, what is refused, and which rows differ.
#include "stp/report/benchmark_comparison.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "stp/base/json_input.h"
#include "support/refusal.h"

namespace stp {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

json iteration(const std::string& name, double real_time, const std::string& unit = "ms") {
  return {{"name", name},           {"run_name", name},      {"run_type", "iteration"}, {"repetitions", 1},
          {"real_time", real_time}, {"cpu_time", real_time}, {"time_unit", unit},       {"iterations", 7}};
}

json file_of(json benchmarks) {
  return {{"context", {{"host_name", "here"}, {"date", "today"}}}, {"benchmarks", std::move(benchmarks)}};
}

BenchmarkFile read(const json& content) { return read_benchmarks(content, "b.json"); }

TEST(BenchmarkFile, GathersRepetitionsInSecondsAndLeavesAggregatesOut) {
  json counted = iteration("one", 4, "us");
  counted["bus_gb_per_s"] = 120.5;
  json mean = iteration("one", 3);
  mean["run_type"] = "aggregate";
  const BenchmarkFile file = read(file_of({iteration("one", 2), counted, mean, iteration("two", 5, "ns")}));
  ASSERT_EQ(file.rows.size(), 2);
  EXPECT_THAT(file.rows[0].seconds, ElementsAre(2e-3, 4e-6));
  EXPECT_THAT(file.rows[0].counters, ElementsAre(std::pair{"bus_gb_per_s", std::vector{120.5}}));
  EXPECT_THAT(file.rows[1].seconds, ElementsAre(5e-9));
  EXPECT_EQ(file.rows[1].trouble, "");
}

TEST(BenchmarkFile, HasTheOrderOfRegistrationHoweverInterleaved) {
  json late = iteration("a", 1), early = iteration("z", 1), middle = iteration("m", 1);
  late["family_index"] = 2;
  early["family_index"] = middle["family_index"] = 0;
  early["per_family_instance_index"] = 0;
  middle["per_family_instance_index"] = 1;
  const BenchmarkFile file = read(file_of({late, middle, early, late}));
  ASSERT_EQ(file.rows.size(), 3);
  EXPECT_EQ(file.rows[0].name + file.rows[1].name + file.rows[2].name, "zma");
  EXPECT_EQ(file.rows[2].seconds.size(), 2);
}

TEST(BenchmarkFile, KnowsErrorsAndSkipsOfBothKinds) {
  json failed = iteration("failed", 0), skipped = iteration("skipped", 0), fine = iteration("fine", 1);
  failed.update({{"error_occurred", true}, {"error_message", "no GPU"}});
  skipped.update({{"skipped", true}, {"skip_message", "one rank"}});
  fine.update({{"error_occurred", false}, {"skipped", ""}});
  const BenchmarkFile file = read(file_of({failed, skipped, fine}));
  EXPECT_EQ(file.rows[0].trouble, "no GPU");
  EXPECT_EQ(file.rows[1].trouble, "one rank");
  EXPECT_EQ(file.rows[2].trouble, "");
}

TEST(BenchmarkFile, RefusesWhatItCannotCompare) {
  json aggregate = iteration("one_mean", 1), unit = iteration("one", 1, "weeks"),
       negative = iteration("one", -1);
  aggregate["run_type"] = "aggregate";
  json timeless = iteration("one", 1);
  timeless.erase("real_time");
  const auto why = [](const json& benchmarks) { return refusal([&] { read(file_of(benchmarks)); }); };
  EXPECT_THAT(why(json::array({aggregate})),
              AllOf(StartsWith("b.json: benchmarks: "), HasSubstr("aggregates alone"),
                    HasSubstr("--benchmark_report_aggregates_only")));
  EXPECT_THAT(why(json::array()), HasSubstr("is empty"));
  EXPECT_THAT(why(json::array({unit})),
              AllOf(StartsWith("b.json: benchmarks[0].time_unit: "), HasSubstr("write ns, us")));
  EXPECT_THAT(why({iteration("one", 1), negative}), StartsWith("b.json: benchmarks[1].real_time: "));
  EXPECT_THAT(why(json::array({timeless})), HasSubstr("real_time: is missing"));
  EXPECT_THAT(why(json::array({3})), StartsWith("b.json: benchmarks[0]: "));
  EXPECT_THAT(refusal([] {
                read({{"context", 3}, {"benchmarks", json::array()}});
              }),
              StartsWith("b.json: context: "));
}

TEST(BenchmarkFile, IsReadThoughGoogleBenchmarkWritesNoNumbers) {
  const std::string text = R"({"a": NaN, "b": [-Infinity, -NaN,inf], "c NaN": "NaN \" inf"})";
  EXPECT_EQ(json::parse(without_non_finite(text)),
            (json{{"a", nullptr}, {"b", {nullptr, nullptr, nullptr}}, {"c NaN", "NaN \" inf"}}));
}

// ---- comparison ----

// `benchmarks` kernels of 10 ms with 2 % of noise, the first `factor` times as long.
BenchmarkFile run(unsigned seed, double factor = 1, int benchmarks = 10, int repetitions = 12) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> noise(0, 0.02);
  json rows = json::array();
  for (int benchmark = 0; benchmark < benchmarks; ++benchmark)
    for (int repetition = 0; repetition < repetitions; ++repetition)
      rows.push_back(iteration("kernel" + std::to_string(benchmark),
                               10 * std::exp(noise(random)) * (benchmark == 0 ? factor : 1)));
  return read(file_of(rows));
}

std::string verdict(const json& comparison, size_t row, size_t file = 1) {
  return comparison.at("rows").at(row).at("cells").at(file).at("against_first").at("verdict");
}

TEST(BenchmarkComparison, FindsNothingBetweenRunsOfOneMachine) {
  for (unsigned seed = 0; seed < 50; ++seed) {
    const json comparison = compare_benchmarks({run(2 * seed), run(2 * seed + 1)});
    for (size_t row = 0; row < 10; ++row) EXPECT_EQ(verdict(comparison, row), "same") << seed << ", " << row;
  }
  const json itself = compare_benchmarks({run(1), run(1)});
  for (size_t row = 0; row < 10; ++row) EXPECT_EQ(verdict(itself, row), "same");
}

TEST(BenchmarkComparison, FindsTheKernelThatWasSlowedByTenPerCentAndNoOther) {
  for (unsigned seed = 0; seed < 50; ++seed) {
    const json comparison =
        compare_benchmarks({run(2 * seed), run(2 * seed + 1, 1.1), run(2 * seed + 1, 0.9)});
    EXPECT_EQ(verdict(comparison, 0), "slower") << seed;
    EXPECT_EQ(verdict(comparison, 0, 2), "faster") << seed;
    for (size_t row = 1; row < 10; ++row) EXPECT_EQ(verdict(comparison, row), "same") << seed << ", " << row;
  }
}

TEST(BenchmarkComparison, HoldsTheFiguresOfItsRows) {
  const BenchmarkFile first = read(file_of({iteration("k", 1), iteration("k", 3), iteration("k", 2)}));
  const BenchmarkFile second = read(file_of({iteration("k", 8), iteration("k", 6), iteration("k", 4)}));
  const json comparison = compare_benchmarks({first, second});
  const json& cells = comparison.at("rows").at(0).at("cells");
  EXPECT_EQ(cells[0].at("median_s"), 2e-3);
  EXPECT_EQ(cells[0].at("interval_s"), nullptr);  // three repetitions have none
  EXPECT_EQ(cells[0].at("against_first"), nullptr);
  EXPECT_DOUBLE_EQ(cells[1].at("against_first").at("difference"), 2.0);
  EXPECT_DOUBLE_EQ(cells[1].at("against_first").at("p"), 0.1);
  EXPECT_EQ(verdict(comparison, 0), "too few");
  EXPECT_EQ(comparison.at("rule").at("repetitions_needed"), 4);  // 2 of 70
}

TEST(BenchmarkComparison, MarksNoisyRows) {
  json rows = json::array();
  for (const double time : {9.0, 9.1, 10.0, 10.1, 11.0, 11.1}) rows.push_back(iteration("noisy", time, "s"));
  for (const double time : {9.8, 9.9, 10.0, 10.1, 10.2, 10.3}) rows.push_back(iteration("calm", time, "s"));
  const json comparison = compare_benchmarks({read(file_of(rows)), read(file_of(rows))});
  EXPECT_TRUE(comparison.at("rows")[0].at("cells")[0].at("noisy"));
  EXPECT_FALSE(comparison.at("rows")[1].at("cells")[0].at("noisy"));
  EXPECT_EQ(comparison.at("rows")[0].at("cells")[0].at("interval_s"), (json{9.0, 11.1}));
}

TEST(BenchmarkComparison, KeepsRowsThatOneFileLacksOrThatFailed) {
  json failed = iteration("bad", 1);
  failed.update({{"error_occurred", true}, {"error_message", "no GPU"}});
  const json comparison =
      compare_benchmarks({read(file_of({iteration("both", 1), iteration("first", 1), iteration("bad", 1)})),
                          read(file_of({failed, iteration("second", 1), iteration("both", 1)}))});
  std::vector<std::string> names;
  for (const json& row : comparison.at("rows")) names.push_back(row.at("name"));
  EXPECT_THAT(names, ElementsAre("both", "first", "bad", "second"));
  EXPECT_EQ(comparison.at("rows")[1].at("cells")[1], nullptr);
  EXPECT_EQ(comparison.at("rows")[2].at("cells")[1], (json{{"skipped", "no GPU"}}));
  EXPECT_EQ(comparison.at("rows")[3].at("cells")[0], nullptr);
  EXPECT_EQ(comparison.at("rows")[3].at("cells")[1].at("against_first"), nullptr);
  EXPECT_EQ(comparison.at("rule").at("comparisons"), 1);
}

TEST(BenchmarkComparison, TellsWhereTheContextsDifferAndRefusesStrangers) {
  BenchmarkFile here = run(1), there = run(2);
  there.context["host_name"] = "there";
  there.context["date"] = "tomorrow";
  EXPECT_EQ(compare_benchmarks({here, there}).at("differs"),
            (json{{{"field", "host_name"}, {"values", {"here", "there"}}}}));
  EXPECT_THAT(refusal([&] {
                compare_benchmarks({here, read(file_of({iteration("other", 1)}))});
              }),
              AllOf(StartsWith("b.json: benchmarks: "), HasSubstr("no benchmark in common")));
}

// ---- verdicts ----

TEST(Verdicts, CallSmallDifferencesTheSameHoweverSignificant) {
  std::vector<double> before, four_more, six_more;
  for (int i = 0; i < 20; ++i) {
    before.push_back(1 + 1e-4 * i);
    four_more.push_back(1.04 * before.back());
    six_more.push_back(1.06 * before.back());
  }
  const auto judged = compare_samples({{before, four_more}, {before, six_more}, {six_more, before}});
  EXPECT_LT(judged[0].adjusted_p, 1e-6);
  EXPECT_EQ(judged[0].verdict, Verdict::same);
  EXPECT_EQ(judged[1].verdict, Verdict::slower);
  EXPECT_EQ(judged[2].verdict, Verdict::faster);
  EXPECT_EQ(compare_samples({{before, four_more}}, {.least_difference = 0.03})[0].verdict, Verdict::slower);
  EXPECT_EQ(compare_samples({{before, before}}, {.least_difference = 0})[0].verdict, Verdict::same);
}

TEST(Verdicts, AskMoreOfNoisySamples) {
  // Twelve values from 1 to 1.22 and the same a fifth larger: far apart, and both intervals are ±6 %.
  std::vector<double> first, second, steady, slower;
  for (int i = 0; i < 12; ++i) {
    first.push_back(1 + 0.02 * i);
    second.push_back(first.back() * 1.2);
    steady.push_back(1 + 0.002 * i);
    slower.push_back(steady.back() * 1.2);
  }
  ASSERT_TRUE(summarise_sample(first).noisy);
  ASSERT_FALSE(summarise_sample(steady).noisy);
  VerdictRule rule;
  rule.least_difference = 0.1;
  const auto judged = compare_samples({{first, second}, {steady, slower}}, rule);
  EXPECT_LE(judged[0].adjusted_p, 0.05);
  EXPECT_EQ(judged[0].verdict, Verdict::same);  // 20 %, less than 10 and the two intervals
  EXPECT_EQ(judged[1].verdict, Verdict::slower);
  rule.least_difference = 0.05;
  EXPECT_EQ(compare_samples({{first, second}}, rule)[0].verdict, Verdict::slower);
}

TEST(Verdicts, SayWhenThereAreTooFewRepetitionsForSoManyComparisons) {
  // Five against five: p is 2 of 252 at the least, which six comparisons can bear and seven cannot.
  const SamplePair clear{{1, 2, 3, 4, 5}, {6, 7, 8, 9, 10}}, mixed{{1, 3, 5, 7, 9}, {2, 4, 6, 8, 10}};
  const auto verdicts = [](const std::vector<SamplePair>& family) {
    std::vector<Verdict> found;
    for (const SampleComparison& one : compare_samples(family)) found.push_back(one.verdict);
    return found;
  };
  EXPECT_THAT(verdicts({clear, mixed, mixed, mixed, mixed, mixed}),
              ElementsAre(Verdict::slower, Verdict::same, Verdict::same, Verdict::same, Verdict::same,
                          Verdict::same));
  EXPECT_THAT(verdicts({clear, mixed, mixed, mixed, mixed, mixed, mixed}), testing::Each(Verdict::too_few));
  EXPECT_EQ(repetitions_needed(6), 5);
  EXPECT_EQ(repetitions_needed(7), 6);
  EXPECT_EQ(repetitions_needed(1), 4);
}

TEST(Verdicts, KnowNoRelativeDifferenceFromNothing) {
  const auto judged = compare_samples({{{0, 0, 0, 0}, {1, 2, 3, 4}}});
  EXPECT_EQ(judged[0].difference, std::nullopt);
  EXPECT_EQ(judged[0].verdict, Verdict::slower);
}

}  // namespace
}  // namespace stp
