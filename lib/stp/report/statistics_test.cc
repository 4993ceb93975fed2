// Medians and their intervals against a published table and values computed by hand.
#include "stp/report/statistics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

namespace stp {
namespace {

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

}  // namespace
}  // namespace stp
