// Medians, their intervals and rank tests against published tables and values computed by hand; error rates
// and power over many draws.
#include "stp/report/statistics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "support/effort.h"

namespace stp {
namespace {

using testing::DoubleNear;
using testing::ElementsAre;

std::vector<double> first_numbers(int count) {
  std::vector<double> values(count);
  std::iota(values.begin(), values.end(), 1);
  return values;
}

TEST(Median, IsTheMiddleOfTheSortedValues) {
  EXPECT_EQ(median({3}), 3);
  EXPECT_EQ(median({5, 1, 3}), 3);
  EXPECT_EQ(median({8, 1, 2, 4}), 3);
}

// ---- intervals ----

TEST(MedianInterval, HasThePlacesOfThePublishedTable) {
  // Conover, Practical Nonparametric Statistics: binomial with p = 1/2, 95 %. Value k is k itself.
  struct Row {
    int n, k;
    double coverage;
  };
  for (const Row& row : {Row{6, 1, 0.96875}, Row{9, 2, 0.9609375}, Row{10, 2, 0.978515625},
                         Row{12, 3, 0.96142578125}, Row{15, 4, 0.96484375}, Row{20, 6, 0.9586105346679688},
                         Row{30, 10, 0.9572260547429323}, Row{50, 18, 0.9671608624357315},
                         Row{100, 40, 0.9647997997822951}, Row{200, 86, 0.9599628083866005}}) {
    const auto interval = median_interval(first_numbers(row.n));
    ASSERT_TRUE(interval) << row.n;
    EXPECT_EQ(interval->low, row.k) << row.n;
    EXPECT_EQ(interval->high, row.n + 1 - row.k) << row.n;
    EXPECT_NEAR(interval->coverage, row.coverage, 1e-12) << row.n;
  }
}

TEST(MedianInterval, IsNoneWhereTheExtremesDoNotCoverEnough) {
  for (int n = 1; n < 6; ++n) EXPECT_FALSE(median_interval(first_numbers(n))) << n;
  EXPECT_TRUE(median_interval(first_numbers(5), 0.9));
  EXPECT_FALSE(median_interval(first_numbers(6), 0.97));
}

TEST(MedianInterval, SortsItsValuesAndHoldsForThousands) {
  const auto interval = median_interval({6, 1, 5, 2, 4, 3});
  ASSERT_TRUE(interval);
  EXPECT_EQ(interval->low, 1);
  EXPECT_EQ(interval->high, 6);
  const auto many = median_interval(first_numbers(4001));  // 2⁻ⁿ alone is no number any more
  ASSERT_TRUE(many);
  EXPECT_NEAR(many->low, 2001 - 1.96 * std::sqrt(4001) / 2, 1);
  EXPECT_EQ(many->low + many->high, 4002);
}

TEST(MedianInterval, CoversTheMedianAsOftenAsItSays) {
  std::mt19937_64 random(1);
  std::exponential_distribution<double> skewed(std::log(2.0));  // median 1
  constexpr int kDraws = 20000;
  int covered = 0;
  double coverage = 0;
  for (int draw = 0; draw < kDraws; ++draw) {
    std::vector<double> values(12);
    for (double& value : values) value = skewed(random);
    const auto interval = median_interval(values);
    covered += interval->low <= 1 && 1 <= interval->high;
    coverage = interval->coverage;
  }
  EXPECT_NEAR(static_cast<double>(covered) / kDraws, coverage, 0.004);  // three standard errors
}

// ---- Mann-Whitney ----

TEST(MannWhitney, CountsPairs) {
  EXPECT_EQ(mann_whitney({1, 2, 3}, {4, 5, 6}).u, 0);
  EXPECT_EQ(mann_whitney({4, 5, 6}, {1, 2, 3}).u, 9);
  EXPECT_EQ(mann_whitney({1, 4}, {2, 3}).u, 2);
  EXPECT_EQ(mann_whitney({2, 2, 5}, {2, 3}).u, 0.5 + 0.5 + 2);  // ties count a half
}

TEST(MannWhitney, HasTheProbabilitiesOfTheFirstTable) {
  // Mann and Whitney 1947, Table I: P(U ≤ u) for n = m = 3 and 4, to three decimals; two-sided is twice that.
  const double three[] = {.050, .100, .200, .350, .500},
               four[] = {.014, .029, .057, .100, .171, .243, .343, .443};
  const std::vector<double> threes[] = {{4, 5, 6}, {3, 5, 6}, {2, 5, 6}, {1, 5, 6}, {1, 4, 6}};
  for (size_t u = 0; u < 5; ++u) {
    std::vector<double> second;
    for (int value = 1; value <= 6; ++value)
      if (std::find(threes[u].begin(), threes[u].end(), value) == threes[u].end()) second.push_back(value);
    const MannWhitney test = mann_whitney(second, threes[u]);
    EXPECT_EQ(test.u, static_cast<double>(u));
    EXPECT_TRUE(test.exact);
    EXPECT_NEAR(test.p, std::min(1.0, 2 * three[u]), 1e-12);
  }
  for (size_t u = 0; u < 8; ++u) {
    // Four of the second sample, one of which lies below u of the first.
    const double low = u < 4 ? 4.5 - static_cast<double>(u) : 0.5,
                 next = u < 4 ? 5.1 : 4.5 - static_cast<double>(u - 4);
    const MannWhitney test = mann_whitney({1, 2, 3, 4}, {low, next, 5.2, 5.3});
    EXPECT_EQ(test.u, static_cast<double>(u));
    EXPECT_NEAR(test.p, 2 * four[u], 1.1e-3);
  }
}

TEST(MannWhitney, HasTheCriticalValuesOfTheTables) {
  // The largest U that is significant at 5 %, two-sided, as any table prints it.
  struct Row {
    int n1, n2, critical;
  };
  for (const Row& row :
       {Row{5, 5, 2}, Row{6, 6, 5}, Row{5, 8, 6}, Row{7, 9, 12}, Row{8, 8, 13}, Row{10, 10, 23},
        Row{9, 11, 23}, Row{12, 12, 37}, Row{15, 20, 90}, Row{20, 20, 127}}) {
    const auto p_of = [&](int u) {
      // The first sample exceeds u pairs: its largest values stand above all of the second, one in between.
      std::vector<double> first, second = first_numbers(row.n2);
      for (int i = 0, left = u; i < row.n1; ++i) {
        const int above = std::min(left, row.n2);
        left -= above;
        first.push_back(above + 0.5 + 0.001 * i);
      }
      const MannWhitney test = mann_whitney(first, second);
      EXPECT_EQ(test.u, u);
      return test.p;
    };
    EXPECT_LE(p_of(row.critical), 0.05) << row.n1 << ", " << row.n2;
    EXPECT_GT(p_of(row.critical + 1), 0.05) << row.n1 << ", " << row.n2;
  }
}

TEST(MannWhitney, GivesThePsOfTextbooks) {
  // Hollander and Wolfe, Table 4.1 (permeability): W = 35, one-sided p 0.1272.
  const MannWhitney membrane = mann_whitney({0.80, 0.83, 1.89, 1.04, 1.45, 1.38, 1.91, 1.64, 0.73, 1.46},
                                            {1.15, 0.88, 0.90, 0.74, 1.21});
  EXPECT_EQ(membrane.u, 35);
  EXPECT_NEAR(membrane.p, 0.2544122544122544, 1e-12);
  // Five and four: 14 of 126 orders.
  EXPECT_NEAR(mann_whitney({19, 22, 16, 29, 24}, {20, 11, 17, 12}).p, 14.0 / 126, 1e-12);
  // 49 and 48, the largest that are exact (SciPy).
  std::vector<double> squares, line;
  for (int i = 0; i < 49; ++i) squares.push_back(0.5 * i * i);
  for (int i = 0; i < 48; ++i) line.push_back(7.3 * i + 0.01);
  EXPECT_TRUE(mann_whitney(squares, line).exact);
  EXPECT_NEAR(mann_whitney(squares, line).p, 0.02108264199750715, 1e-12);
}

TEST(MannWhitney, CorrectsTheApproximationForTiesAndContinuity) {
  // By hand: U 6, mean 15, groups of 3 twos and 3 threes: variance 30/12 · (12 − 48/110); (9 − ½)/σ = 1.5809.
  const MannWhitney tied = mann_whitney({1, 2, 2, 3, 4}, {2, 3, 3, 5, 6, 7});
  EXPECT_FALSE(tied.exact);
  EXPECT_EQ(tied.u, 6);
  EXPECT_NEAR(tied.p, 0.11390314458853068, 1e-12);
  EXPECT_EQ(mann_whitney({1, 1, 1}, {1, 1, 1}).p, 1);
  std::vector<double> sixty, others;
  for (int i = 0; i < 60; ++i) sixty.push_back(i);
  for (int i = 0; i < 55; ++i) others.push_back(i + 10.5);
  EXPECT_FALSE(mann_whitney(sixty, others).exact);  // too many for the exact distribution
  EXPECT_NEAR(mann_whitney(sixty, others).p, 0.017466219103968242, 1e-12);
}

TEST(MannWhitney, DoesNotCareWhichSampleIsFirst) {
  std::mt19937_64 random(2);
  std::uniform_int_distribution<int> value(0, 1 << 20), few(0, 5), size(1, 20);
  for (int draw = 0; draw < 300; draw += kStride) {
    std::vector<double> a(size(random)), b(size(random));
    for (double& each : a) each = draw % 2 == 0 ? value(random) : few(random);
    for (double& each : b) each = draw % 2 == 0 ? value(random) : few(random);
    EXPECT_THAT(mann_whitney(a, b).p, DoubleNear(mann_whitney(b, a).p, 1e-12));
    EXPECT_EQ(mann_whitney(a, b).u + mann_whitney(b, a).u, static_cast<double>(a.size() * b.size()));
    EXPECT_GE(mann_whitney(a, b).p, std::min(1.0, least_mann_whitney_p(a.size(), b.size())) * 0.3);
  }
}

TEST(MannWhitney, HasALeastPAtTheEnds) {
  for (const auto& [n1, n2] : {std::pair{1, 1}, {3, 3}, {4, 7}, {12, 12}, {49, 49}, {50, 60}}) {
    std::vector<double> above = first_numbers(n1);
    for (double& value : above) value += n2;
    EXPECT_NEAR(least_mann_whitney_p(n1, n2) / mann_whitney(above, first_numbers(n2)).p, 1, 1e-9);
  }
  EXPECT_NEAR(least_mann_whitney_p(3, 3), 0.1, 1e-12);
  EXPECT_EQ(least_mann_whitney_p(1, 1), 1);
}

// ---- Holm ----

TEST(Holm, AdjustsTheUsualExample) {
  // Four hypotheses at 0.01, 0.04, 0.03 and 0.005: times 3, 1, 2 and 4, then never below a smaller one's.
  EXPECT_THAT(holm({0.01, 0.04, 0.03, 0.005}), ElementsAre(DoubleNear(0.03, 1e-15), DoubleNear(0.06, 1e-15),
                                                           DoubleNear(0.06, 1e-15), DoubleNear(0.02, 1e-15)));
  EXPECT_THAT(holm({0.9, 0.7}), ElementsAre(1, 1));
  EXPECT_THAT(holm({0.02}), ElementsAre(0.02));
  EXPECT_THAT(holm({}), ElementsAre());
  EXPECT_THAT(holm({0.01, 0.01, 0.01}), ElementsAre(0.03, 0.03, 0.03));
}

// ---- both together, as benchmarks use them ----

struct Family {
  int benchmarks = 20, repetitions = 12;
  double noise = 0.05;
  double change = 0;  // of the first benchmark alone
};

// Adjusted p of one family of log-normal times.
std::vector<double> adjusted(std::mt19937_64& random, const Family& family) {
  std::normal_distribution<double> normal(0, family.noise);
  std::vector<double> p;
  for (int benchmark = 0; benchmark < family.benchmarks; ++benchmark) {
    std::vector<double> before(family.repetitions), after(family.repetitions);
    for (double& value : before) value = std::exp(normal(random));
    for (double& value : after) value = std::exp(normal(random)) * (benchmark == 0 ? 1 + family.change : 1);
    p.push_back(mann_whitney(before, after).p);
  }
  return holm(p);
}

TEST(MannWhitneyWithHolm, SeldomFindsAnythingWhereNothingDiffers) {
  std::mt19937_64 random(3);
  const int families = 4000 / kStride;
  int wrong = 0;
  for (int family = 0; family < families; ++family) {
    const std::vector<double> p = adjusted(random, {});
    wrong += *std::min_element(p.begin(), p.end()) <= 0.05;
  }
  EXPECT_LE(wrong, 0.05 * families);
  EXPECT_GE(wrong, 0.02 * families);  // nor is it deaf
}

TEST(MannWhitneyWithHolm, FindsTenPerCentInFivePerCentOfNoise) {
  const auto power = [](const Family& family) {
    std::mt19937_64 random(4);
    const int families = 2000 / kStride;
    int found = 0;
    for (int draw = 0; draw < families; ++draw) found += adjusted(random, family)[0] <= 0.05;
    return static_cast<double>(found) / families;
  };
  EXPECT_GT(power({.benchmarks = 1, .repetitions = 12, .change = 0.10}), 0.97);
  EXPECT_GT(power({.benchmarks = 5, .repetitions = 12, .change = 0.10}), 0.90);
  // What a larger family costs, a few repetitions more buy back.
  EXPECT_GT(power({.benchmarks = 20, .repetitions = 12, .change = 0.10}), 0.80);
  EXPECT_GT(power({.benchmarks = 20, .repetitions = 16, .change = 0.10}), 0.90);
}

}  // namespace
}  // namespace stp
