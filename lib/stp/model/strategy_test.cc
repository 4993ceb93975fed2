#include "stp/model/strategy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace stp {
namespace {

using testing::ElementsAre;
using testing::SizeIs;

TEST(RankGrid, CountsTensorThenContextThenDataThenPipelineParallelism) {
  const RankGrid grid{.tp = 2, .cp = 3, .dp = 2, .pp = 2};
  EXPECT_EQ(grid.size(), 24);
  EXPECT_THAT(grid.group(15, {.tp = true}), ElementsAre(14, 15));
  EXPECT_THAT(grid.group(15, {.cp = true}), ElementsAre(13, 15, 17));
  EXPECT_THAT(grid.group(15, {.cp = true, .dp = true}), ElementsAre(13, 15, 17, 19, 21, 23));
  EXPECT_THAT(grid.group(15, {.tp = true, .pp = true}), ElementsAre(2, 3, 14, 15));
  EXPECT_THAT(grid.group(15, {}), ElementsAre(15));
  EXPECT_THAT(grid.group(15, kAllAxes), SizeIs(24));
  EXPECT_EQ(grid.index(grid.place(15), {.cp = true, .dp = true}), 1);
  EXPECT_EQ(grid.index(grid.place(15), kAllAxes.without({.cp = true, .dp = true})), 3);
  for (int rank = 0; rank < grid.size(); ++rank) EXPECT_EQ(grid.rank(grid.place(rank)), rank);
}

TEST(RankGrid, HasTheAxesOfItsStrategy) {
  Strategy strategy;
  int ranks = 2;
  for (const Axis& axis : kAxes) strategy.*axis.ranks = ranks++;
  EXPECT_EQ(strategy.grid().size(), 2 * 3 * 4 * 5);
  EXPECT_EQ(strategy.world_size(), 2 * 3 * 4 * 5);
}

}  // namespace
}  // namespace stp
