// Adjacent I and W as one B: by hand, and on random orders.
#include "stp/schedule/merge_backward.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "support/schedules.h"

namespace stp {
namespace {

using testing::ElementsAreArray;

std::vector<Block> merged(const std::vector<std::string>& blocks, int microbatches = 2) {
  return merge_backward(schedule_of(Placement::loop(1, 1), microbatches, {blocks})).ranks[0];
}
std::vector<Block> blocks_of(const std::vector<std::string>& texts) {
  std::vector<Block> blocks;
  for (const std::string& text : texts) blocks.push_back(parse_block(text));
  return blocks;
}

TEST(MergeBackward, OnlyWhereTheWeightGradientOfTheSameMicrobatchFollowsAtOnceAndAlone) {
  EXPECT_THAT(merged({"F0.0", "F0.1", "I0.0", "W0.0", "I0.1", "W0.1"}),
              ElementsAreArray(blocks_of({"F0.0", "F0.1", "B0.0", "B0.1"})));
  for (const std::vector<std::string>& kept :
       std::vector<std::vector<std::string>>{{"F0.0", "F0.1", "I0.0", "I0.1", "W0.0", "W0.1"},
                                             {"F0.0", "I0.0", "F0.1", "W0.0", "B0.1"},
                                             {"F0.0", "I0.0&F0.1", "W0.0", "I0.1", "F0.2&W0.1", "B0.2"}})
    EXPECT_THAT(merged(kept, 3), ElementsAreArray(blocks_of(kept)));
  const std::vector<std::string> of_chunks{"F0.0", "F1.0", "I1.0", "W1.0", "I0.0", "W0.0"};
  EXPECT_EQ(to_string(merge_backward(schedule_of(Placement::v(1), 1, {of_chunks})).ranks[0][2]), "B1.0");
  const std::vector<std::string> other_chunk{"F0.0", "F1.0", "I1.0", "I0.0", "W1.0", "W0.0"};
  EXPECT_THAT(merge_backward(schedule_of(Placement::v(1), 1, {other_chunk})).ranks[0],
              ElementsAreArray(blocks_of(other_chunk)));
}

TEST(MergeBackward, OfRandomOrdersIsValidAndTheSameWork) {
  std::mt19937 random(3);
  int count = 0;
  for (int round = 0; round < 300; ++round) {
    const int p = 1 + round % 4;
    const Schedule schedule =
        random_schedule(random, round % 2 ? Placement::v(p) : Placement::loop(p, 2), 1 + round % 7);
    const Schedule merged = merge_backward(schedule);
    EXPECT_NO_THROW(validate(merged));
    EXPECT_EQ(passes_by_rank(merged), passes_by_rank(schedule));
    EXPECT_EQ(merge_backward(merged).ranks, merged.ranks);
    for (int rank = 0; rank < p; ++rank)
      count += static_cast<int>(schedule.ranks[rank].size() - merged.ranks[rank].size());
  }
  EXPECT_GT(count, 100);
}

}  // namespace
}  // namespace stp
