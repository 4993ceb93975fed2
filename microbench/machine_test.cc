#include "machine.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <span>
#include <vector>

namespace stp::microbench {
namespace {

TEST(BenchEnv, OperandsAreRandomToTheirEnds) {
  BenchEnv env(find_machine("cpu"), {});
  constexpr int64_t kRows = 700, kColumns = 300;
  const Tensor made = env.make(0, kRows, kColumns);
  std::vector<float> values(kRows * kColumns);
  env.device(0).download(env.compute(0), made, std::as_writable_bytes(std::span(values)));
  env.synchronize();
  std::set<std::vector<float>> rows;
  for (int64_t i = 0; i < kRows; ++i) {
    const std::vector<float> row(&values[i * kColumns], &values[i * kColumns] + kColumns);
    double squares = 0;
    for (const float value : row) {
      ASSERT_LE(std::abs(value), 1);
      squares += value * value;
    }
    EXPECT_NEAR(squares / kColumns, 1.0 / 3, 0.12) << i;  // its deviation is 0.017
    rows.insert(row);
  }
  EXPECT_EQ(rows.size(), kRows);
}

}  // namespace
}  // namespace stp::microbench
