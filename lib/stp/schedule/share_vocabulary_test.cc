// The vocabulary's passes in orders without: by hand, and in random orders.
#include "stp/schedule/share_vocabulary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "support/refusal.h"
#include "support/schedules.h"

namespace stp {
namespace {

constexpr Vocabulary kShared[] = {Vocabulary::two_barriers, Vocabulary::one_barrier};

std::string shared(const std::vector<std::string>& blocks, int microbatches, Vocabulary how) {
  const Schedule shared = share_vocabulary(by_hand(Placement::loop(1, 1), microbatches, {blocks}), how);
  std::string text;
  for (const Block& block : shared.ranks[0]) text += (text.empty() ? "" : " ") + to_string(block);
  return text;
}

// B0.0 was for 1. With one barrier it is for 4, S0.0 for 2.25 and U0.0 for 5.25; with two for 7, and S0.0 for
// 3.25, T0.0 for 5.75.
TEST(ShareVocabulary, MakesBackwardsAnIntervalLaterForEachBarrier) {
  const std::vector<std::string> order{"F0.0", "B0.0", "F0.1", "B0.1"};
  EXPECT_EQ(shared(order, 2, Vocabulary::one_barrier),
            "E0.0 E0.1 F0.0 S0.0 F0.1 B0.0 U0.0 S0.1 B0.1 G0.0 U0.1 G0.1");
  EXPECT_EQ(shared(order, 2, Vocabulary::two_barriers),
            "E0.0 E0.1 F0.0 F0.1 S0.0 T0.0 S0.1 B0.0 T0.1 B0.1 G0.0 G0.1");
}

TEST(ShareVocabulary, BraidsABackwardWithTheForwardOfItsNewTime) {
  EXPECT_EQ(shared({"F0.0", "F0.1", "F0.2&B0.0", "F0.3&B0.1", "B0.2", "B0.3"}, 4, Vocabulary::one_barrier),
            "E0.0 E0.1 F0.0 E0.2 F0.1 E0.3 F0.2 S0.0 S0.1 F0.3&B0.0 U0.0 U0.1 S0.2 B0.1 U0.2 G0.0 S0.3 B0.2 "
            "U0.3 G0.1 B0.3 G0.2 G0.3");
}

TEST(ShareVocabulary, OfRandomOrdersIsValidAndTheSameWork) {
  std::mt19937 random(5);
  for (int round = 0; round < 150; ++round) {
    const int p = 1 + round % 4, v = 1 + round % 3, m = 1 + round % 7;
    const Schedule schedule =
        random_schedule(random, round % 2 ? Placement::wave(p, v) : Placement::loop(p, v), m);
    for (const Vocabulary how : kShared) {
      const Schedule shared = share_vocabulary(schedule, how);
      EXPECT_NO_THROW(validate(shared));
      EXPECT_EQ(vocabulary_of(shared), how);
      auto passes = passes_by_rank(shared);
      for (auto& of_rank : passes)
        std::erase_if(of_rank, [](const Action& action) { return is_of_vocabulary(action.pass); });
      EXPECT_EQ(passes, passes_by_rank(schedule));
    }
  }
}

TEST(ShareVocabulary, IsRefusedASecondTimeAndInTwoPipelines) {
  Schedule once = share_vocabulary(stp_schedule(2, 4), Vocabulary::one_barrier);
  EXPECT_EQ(once.name, "stp+vocab-2");
  EXPECT_THAT(refusal([&] { share_vocabulary(once, Vocabulary::two_barriers); }),
              testing::HasSubstr("stp+vocab-2 has two pipelines or shares its vocabulary already"));
  const Schedule both_ways{"two", Placement::bidirectional(2), 1, {{}, {}}};
  EXPECT_THAT(refusal([&] { share_vocabulary(both_ways, Vocabulary::one_barrier); }),
              testing::HasSubstr("two pipelines"));
}

}  // namespace
}  // namespace stp
