// Groups that come about, and those that never can, told at once and by name.
#include "stp/processes/meetings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <stdexcept>

namespace stp {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Optional;

std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "";
}

TEST(Meetings, GiveAllTextsToTheLastInTheMembersOrder) {
  Meetings meetings(4);
  EXPECT_FALSE(meetings.come(2, {"tp", {3, 0, 2}, "t", "two"}));
  EXPECT_FALSE(meetings.come(3, {"tp", {3, 0, 2}, "t", "three"}));
  EXPECT_EQ(meetings.waiting(),
            "rank 2 waits in group tp of ranks 3, 0, 2 for rank 0; "
            "rank 3 waits in group tp of ranks 3, 0, 2 for rank 0");
  EXPECT_THAT(meetings.come(0, {"tp", {3, 0, 2}, "t", "zero"}),
              Optional(ElementsAre("three", "zero", "two")));
  EXPECT_EQ(meetings.waiting(), "");
  // The same once more.
  EXPECT_FALSE(meetings.come(0, {"tp", {3, 0, 2}, "t", ""}));
}

TEST(Meetings, OfOneAreOverAtOnce) {
  Meetings meetings(4);
  EXPECT_THAT(meetings.come(1, {"tp", {1}, "", "alone"}), Optional(ElementsAre("alone")));
}

// Any order of arrival is fine where every rank goes through its groups in one common order.
TEST(Meetings, AllComeAboutWhereTheOrderIsCommon) {
  constexpr int kRanks = 6;
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    std::vector<Invitation> groups;
    for (int g = 0; g < 12; ++g) {
      Invitation group{"g" + std::to_string(random() % 3), {}, "", ""};
      for (int rank = 0; rank < kRanks; ++rank)
        if (random() % 2 == 0) group.members.push_back(rank);
      if (!group.members.empty()) groups.push_back(group);
    }
    Meetings meetings(kRanks);
    std::vector<size_t> next(kRanks, 0);
    std::vector<bool> waits(kRanks, false);
    size_t held = 0;
    for (;;) {
      std::vector<int> able;
      for (int rank = 0; rank < kRanks; ++rank) {
        const auto is_in = [&](const Invitation& g) { return std::ranges::count(g.members, rank) > 0; };
        while (next[rank] < groups.size() && !is_in(groups[next[rank]])) ++next[rank];
        if (!waits[rank] && next[rank] < groups.size()) able.push_back(rank);
      }
      if (able.empty()) break;
      const int rank = able[random() % able.size()];
      const Invitation& group = groups[next[rank]++];
      waits[rank] = true;
      if (!meetings.come(rank, group)) continue;
      ++held;
      for (const int member : group.members) waits[member] = false;
    }
    EXPECT_EQ(held, groups.size());
    EXPECT_EQ(meetings.waiting(), "");
  }
}

TEST(Meetings, TellWhoAsksInAnotherOrder) {
  Meetings meetings(3);
  EXPECT_FALSE(meetings.come(0, {"a", {0, 1}, "", ""}));
  EXPECT_FALSE(meetings.come(1, {"b", {1, 2}, "", ""}));
  EXPECT_EQ(
      error_of([&] {
        meetings.come(2, {"c", {2, 0}, "", ""});
      }),
      "ranks ask for their groups in different orders: rank 2 waits in group c of ranks 2, 0 for rank 0; "
      "rank 0 waits in group a of ranks 0, 1 for rank 1; "
      "rank 1 waits in group b of ranks 1, 2 for rank 2");
}

TEST(Meetings, TellWhoseMembersOrTermsDiffer) {
  {
    Meetings meetings(3);
    EXPECT_FALSE(meetings.come(0, {"tp", {0, 1}, "", ""}));
    EXPECT_THAT(error_of([&] {
                  meetings.come(1, {"tp", {0, 1, 2}, "", ""});
                }),
                HasSubstr("rank 1 waits in group tp of ranks 0, 1, 2 for ranks 0, 2; rank 0 waits in"));
  }
  Meetings meetings(3);
  EXPECT_FALSE(meetings.come(0, {"tp", {0, 1}, "NCCL 2.28", ""}));
  EXPECT_EQ(error_of([&] {
              meetings.come(1, {"tp", {0, 1}, "NCCL 2.27", ""});
            }),
            "group tp of ranks 0, 1: its members differ: rank 0 has NCCL 2.28, rank 1 has NCCL 2.27");
}

TEST(Meetings, TellWhoHasEnded) {
  Meetings meetings(3);
  EXPECT_FALSE(meetings.come(0, {"tp", {0, 1}, "", ""}));
  meetings.leave(2);
  EXPECT_EQ(error_of([&] { meetings.leave(1); }),
            "rank 0 waits in group tp of ranks 0, 1 for rank 1, but rank 1 has ended");
  Meetings later(3);
  later.leave(1);
  EXPECT_THAT(error_of([&] { later.come(0, {"tp", {0, 1}, "", ""}); }), HasSubstr("but rank 1 has ended"));
}

TEST(Meetings, RefuseWhatIsNoGroup) {
  Meetings meetings(2);
  for (const std::vector<int>& members : std::vector<std::vector<int>>{{}, {1}, {0, 0}, {0, 2}, {0, -1}})
    EXPECT_THAT(error_of([&] {
                  meetings.come(0, {"tp", members, "", ""});
                }),
                HasSubstr("no group of different"));
  EXPECT_FALSE(meetings.come(0, {"tp", {0, 1}, "", ""}));
  EXPECT_THAT(error_of([&] { meetings.come(0, {"dp", {0, 1}, "", ""}); }), HasSubstr("meanwhile"));
}

}  // namespace
}  // namespace stp
