#include "stp/model/strategy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace stp {
namespace {

using testing::ElementsAre;

TEST(RankGrid, CountsTensorThenContextThenDataThenPipelineParallelism) {
  const RankGrid grid{.tp = 2, .cp = 3, .dp = 2, .pp = 2};
  EXPECT_EQ(grid.size(), 24);
  EXPECT_THAT(grid.tensor_group(15), ElementsAre(14, 15));
  EXPECT_THAT(grid.context_group(15), ElementsAre(13, 15, 17));
  EXPECT_THAT(grid.data_group(15), ElementsAre(13, 15, 17, 19, 21, 23));  // all with the same parameters
  EXPECT_THAT(grid.model_group(15), ElementsAre(2, 3, 14, 15));
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
