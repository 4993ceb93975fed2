// Processes that find each other, and what the others hear if one does not behave: over loopback, ranks being
// threads, or processes where one must die.
#include "stp/processes/rendezvous.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <thread>

#include "stp/base/error.h"
#include "stp/processes/joining.h"

namespace stp {
namespace {

using testing::AllOf;
using testing::AnyOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr double kJoin = 20;  // far more than it takes

ProcessPlace place(int rank, int world_size, uint16_t port) {
  return {.rank = rank, .world_size = world_size, .address = "127.0.0.1", .port = port, .run = "test"};
}

using Program = std::function<void(Rendezvous&, RunGuard&)>;

struct Rank {
  ProcessPlace place;
  Program program;
  double deadline_s = 10;
};

// Each rank's outcome: "" or the error that ended it.
std::vector<std::string> outcomes(std::vector<Rank> ranks, double join_s = kJoin) {
  Listener listener("127.0.0.1", 0);
  const uint16_t port = listener.port();
  std::vector<std::string> texts(ranks.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < ranks.size(); ++i) {
    threads.emplace_back([&, i] {
      Rank& rank = ranks[i];
      rank.place.port = port;
      RunGuard guard{std::chrono::duration<double>(rank.deadline_s)};
      try {
        std::optional<Listener> own;
        if (rank.place.rank == 0) own = std::move(listener);
        Rendezvous rendezvous(rank.place, guard, {.join_s = join_s, .silence_s = 60}, std::move(own));
        rank.program(rendezvous, guard);
        rendezvous.end();
      } catch (const Stopped&) {
        texts[i] = guard.failure();
      } catch (const std::exception& error) {
        texts[i] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return texts;
}

std::vector<std::string> outcomes(int world_size, const Program& program) {
  std::vector<Rank> ranks;
  for (int rank = 0; rank < world_size; ++rank) ranks.push_back({place(rank, world_size, 0), program});
  return outcomes(ranks);
}

// Until the run fails: what a rank does that does not look.
void wait_for_failure(RunGuard& guard) {
  while (!guard.failed()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  throw Stopped();
}

TEST(Rendezvous, AWorldOfOneMeetsItself) {
  RunGuard guard(std::chrono::duration<double>(1));
  Rendezvous alone({.port = 1}, guard);
  EXPECT_THAT(alone.meet({"tp", {0}, "", "me"}), ElementsAre("me"));
  alone.end();
}

TEST(Rendezvous, MembersGetEachOthersTexts) {
  const auto found = outcomes(5, [](Rendezvous& rendezvous, RunGuard&) {
    const int rank = rendezvous.place().rank;
    const std::string mine = std::string(1, '\0') + std::to_string(rank);
    const auto text = [](int of) { return std::string(1, '\0') + std::to_string(of); };
    for (int round = 0; round < 20; ++round) {
      EXPECT_THAT(rendezvous.meet({"all", {4, 0, 1, 2, 3}, "", mine}),
                  ElementsAre(text(4), text(0), text(1), text(2), text(3)));
      // Pairs, some side by side.
      for (int first = 0; first < 4; ++first)
        if (rank == first || rank == first + 1) {
          EXPECT_THAT(rendezvous.meet({"p2p", {first + 1, first}, "", mine}),
                      ElementsAre(text(first + 1), text(first)));
        }
    }
  });
  EXPECT_THAT(found, Each(""));
}

TEST(Rendezvous, RanksMayEndAtAnyTime) {
  const auto found = outcomes(4, [](Rendezvous& rendezvous, RunGuard&) {
    std::this_thread::sleep_for(std::chrono::milliseconds(60 * (rendezvous.place().rank % 3)));
  });
  EXPECT_THAT(found, Each(""));
}

TEST(Rendezvous, AFailureOfOneIsThatOfAll) {
  for (const int bad : {0, 2}) {
    const auto found = outcomes(4, [&](Rendezvous& rendezvous, RunGuard& guard) {
      if (rendezvous.place().rank == bad) guard.fail("rank " + std::to_string(bad) + ", tp, F0.1: broken");
      wait_for_failure(guard);
    });
    EXPECT_THAT(found, Each("rank " + std::to_string(bad) + ", tp, F0.1: broken"));
  }
}

TEST(Rendezvous, AnExceptionOfOneEndsAll) {
  for (const int bad : {0, 1}) {
    const auto found = outcomes(3, [&](Rendezvous& rendezvous, RunGuard& guard) {
      if (rendezvous.place().rank == bad) throw std::runtime_error("no such file");
      wait_for_failure(guard);
    });
    for (int rank = 0; rank < 3; ++rank)
      EXPECT_EQ(found[rank], rank == bad ? "no such file" : "rank " + std::to_string(bad) + " ended early");
  }
}

TEST(Rendezvous, GroupsInDifferentOrdersAreAnErrorOfAll) {
  const auto found = outcomes(2, [](Rendezvous& rendezvous, RunGuard&) {
    const bool first = rendezvous.place().rank == 0;
    rendezvous.meet({first ? "tp" : "dp", {0, 1}, "", ""});
    rendezvous.meet({first ? "dp" : "tp", {0, 1}, "", ""});
  });
  EXPECT_THAT(found, Each(AllOf(HasSubstr("different orders"),
                                HasSubstr("rank 0 waits in group tp of ranks 0, 1 for rank 1"),
                                HasSubstr("rank 1 waits in group dp of ranks 0, 1 for rank 0"))));
}

TEST(Rendezvous, AMeetingThatOneHasLeftForGoodIsAnError) {
  const auto found = outcomes(3, [](Rendezvous& rendezvous, RunGuard&) {
    if (rendezvous.place().rank != 1) rendezvous.meet({"tp", {0, 1, 2}, "", ""});
  });
  EXPECT_THAT(found[0], HasSubstr("but rank 1 has ended"));
  EXPECT_EQ(found[1], "");
  EXPECT_THAT(found[2], HasSubstr("but rank 1 has ended"));
}

TEST(Rendezvous, AMeetingThatOneNeverComesToEndsByTheDeadline) {
  std::vector<Rank> ranks;
  for (int rank = 0; rank < 3; ++rank)
    ranks.push_back({place(rank, 3, 0),
                     [](Rendezvous& rendezvous, RunGuard& guard) {
                       if (rendezvous.place().rank == 2) wait_for_failure(guard);
                       rendezvous.meet({"tp", {0, 1, 2}, "", ""});
                     },
                     0.3});
  EXPECT_THAT(outcomes(ranks),
              Each(AllOf(HasSubstr("host, waits for the other members of group tp of ranks 0, 1, 2"),
                         HasSubstr("nothing moved for 0.3 s"))));
}

// Rank 2 takes far longer than the deadline, but says that it gets on.
TEST(Rendezvous, ProgressOfOnePutsOffTheDeadlinesOfAll) {
  std::vector<Rank> ranks;
  for (int rank = 0; rank < 3; ++rank)
    ranks.push_back({place(rank, 3, 0),
                     [](Rendezvous& rendezvous, RunGuard& guard) {
                       if (rendezvous.place().rank == 2)
                         for (int i = 0; i < 40; ++i) {
                           std::this_thread::sleep_for(std::chrono::milliseconds(100));
                           guard.progress();
                         }
                       rendezvous.meet({"tp", {0, 1, 2}, "", ""});
                     },
                     2});
  EXPECT_THAT(outcomes(ranks), Each(""));
}

// Texts of any length and of any bytes; those who give do not wait for rank 0.
TEST(Rendezvous, RankZeroGathersTheTextsOfAll) {
  const auto text = [](int rank, int round) {
    std::string made = std::string(1, '\0') + std::to_string(rank) + "/" + std::to_string(round);
    if (round == 1) made.resize(size_t{3'000'000} * rank, static_cast<char>('a' + rank));
    return round == 3 ? "" : made;
  };
  const auto found = outcomes(3, [&](Rendezvous& rendezvous, RunGuard&) {
    const int rank = rendezvous.place().rank;
    if (rank == 0) std::this_thread::sleep_for(std::chrono::milliseconds(100));
    for (int round = 0; round < 5; ++round) {
      const auto all = rendezvous.gather("times", text(rank, round));
      if (rank > 0) {
        EXPECT_TRUE(all.empty());
      } else {
        EXPECT_EQ(all, (std::vector<std::string>{text(0, round), text(1, round), text(2, round)})) << round;
      }
    }
  });
  EXPECT_THAT(found, Each(""));
  RunGuard guard(std::chrono::duration<double>(1));
  Rendezvous alone({.port = 1}, guard);
  EXPECT_THAT(alone.gather("times", "mine"), ElementsAre("mine"));
  alone.end();
}

// Rank 0 is busy while the others have long ended, with more under way than the system holds.
TEST(Rendezvous, WhatWasGivenBeforeTheEndComesThrough) {
  constexpr size_t kBytes = 20'000'000;
  const auto found = outcomes(3, [](Rendezvous& rendezvous, RunGuard&) {
    const auto all = rendezvous.gather("times", std::string(kBytes, 'x'));
    if (rendezvous.place().rank == 0) {
      EXPECT_EQ(all.at(2), std::string(kBytes, 'x'));
    }
  });
  EXPECT_THAT(found, Each(""));
}

TEST(Rendezvous, AGatherThatOneNeverComesToNamesIt) {
  for (const bool ends : {true, false}) {
    std::vector<Rank> ranks;
    for (int rank = 0; rank < 4; ++rank)
      ranks.push_back({place(rank, 4, 0),
                       [ends](Rendezvous& rendezvous, RunGuard& guard) {
                         const int here = rendezvous.place().rank;
                         if (here == 2 && ends) return;
                         if (here != 2) rendezvous.gather("times", "x");
                         if (here != 0) wait_for_failure(guard);
                       },
                       ends ? 60 : 0.3});
    const auto found = outcomes(ranks);
    for (const int rank : {0, 1, 3})
      EXPECT_THAT(found[rank], ends ? testing::Matcher<std::string>(
                                          HasSubstr("rank 2 ended without times, which rank 0 waits for"))
                                    : AllOf(HasSubstr("rank 0, host, waits for times of rank 2"),
                                            HasSubstr("nothing moved for 0.3 s")));
  }
}

TEST(Rendezvous, GathersInDifferentOrdersAreAnErrorOfAll) {
  const auto found = outcomes(3, [](Rendezvous& rendezvous, RunGuard& guard) {
    rendezvous.gather(rendezvous.place().rank == 1 ? "losses" : "times", "x");
    wait_for_failure(guard);
  });
  EXPECT_THAT(found, Each("rank 1 gave losses where rank 0 waits for times"));
}

TEST(Rendezvous, RefusesAnotherWorldSize) {
  const Program nothing = [](Rendezvous&, RunGuard& guard) { wait_for_failure(guard); };
  EXPECT_THAT(outcomes({{place(0, 3, 0), nothing}, {place(1, 3, 0), nothing}, {place(2, 8, 0), nothing}}, 3),
              ElementsAre(HasSubstr("was started in a world of 8 ranks, rank 0 of 3"),
                          // who came first hears why, who came later finds nobody
                          AnyOf(HasSubstr("world of 8 ranks"), HasSubstr("rank 0 at")),
                          AllOf(HasSubstr("rank 2 ("), HasSubstr("world of 8 ranks"))));
}

TEST(Rendezvous, RefusesARankThatIsThereTwice) {
  const Program nothing = [](Rendezvous&, RunGuard& guard) { wait_for_failure(guard); };
  const auto found =
      outcomes({{place(0, 3, 0), nothing}, {place(1, 3, 0), nothing}, {place(1, 3, 0), nothing}});
  EXPECT_THAT(found,
              Each(AllOf(HasSubstr("two processes have one rank: rank 1 ("), HasSubstr("and rank 1 ("))));
}

TEST(Rendezvous, TurnsAwayALateDoubleAndStrangersAndRunsOn) {
  const auto found = outcomes(2, [](Rendezvous& rendezvous, RunGuard& guard) {
    const ProcessPlace& here = rendezvous.place();
    if (here.rank == 0) {
      std::string why;
      std::vector<Connection> strangers;
      for (int i = 0; i < 3; ++i)
        strangers.push_back(*Connection::to("127.0.0.1", here.port, std::chrono::seconds(5), why));
      strangers[1].push(Frame(77, "not for you"));
      EXPECT_TRUE(strangers[1].flush());
      EXPECT_EQ(send(strangers[2].fd(), "GET / HTTP/1.1\r\n\r\n", 18, 0), 18);
    } else {
      RunGuard other(std::chrono::duration<double>(5));
      try {
        Rendezvous again(here, other, {.join_s = kJoin});
        ADD_FAILURE();
      } catch (const InputError& error) {
        EXPECT_THAT(error.what(), HasSubstr("there is a rank 1 already"));
      }
    }
    EXPECT_EQ(rendezvous.meet({"tp", {0, 1}, "", "x"}).size(), 2U);
    guard.check();
  });
  EXPECT_THAT(found, Each(""));
}

TEST(Rendezvous, AMessageThatIsNoneFailsTheRunAndNamesItsSender) {
  Listener listener("127.0.0.1", 0);
  const uint16_t port = listener.port();
  for (const std::string& garbage :
       {std::string("garbage"), std::string("STP1\x04\0\0\0\xff\xff\xff\xff", 12),
        std::string("STP1\x04\0\0\0\x01\0\0\0X", 13)}) {
    std::thread bad([&] {
      Peer host = join_as_guest(place(1, 2, port), std::chrono::duration<double>(kJoin));
      EXPECT_EQ(send(host.connection.fd(), garbage.data(), garbage.size(), 0),
                static_cast<ssize_t>(garbage.size()));
      while (host.connection.fill()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    });
    RunGuard guard(std::chrono::duration<double>(10));
    {
      Rendezvous rendezvous(place(0, 2, port), guard, {.join_s = kJoin}, std::move(listener));
      EXPECT_THROW(rendezvous.meet({"tp", {0, 1}, "", ""}), Stopped);
    }
    bad.join();
    EXPECT_THAT(guard.failure(), AllOf(HasSubstr("rank 1 ("), HasSubstr(" sent "))) << garbage;
    listener = Listener("127.0.0.1", port);
  }
}

// Ranks that are processes; one is killed, without a last word.
TEST(Rendezvous, TheDeathOfAProcessFailsAllOthersAndNamesIt) {
  for (const int victim : {0, 2}) {
    Listener listener("127.0.0.1", 0);
    const uint16_t port = listener.port();
    std::vector<pid_t> children;
    for (int rank = 0; rank < 3; ++rank) {
      const pid_t child = fork();
      ASSERT_GE(child, 0);
      if (child > 0) {
        children.push_back(child);
        continue;
      }
      std::optional<Listener> own;
      if (rank == 0) own = std::move(listener);
      RunGuard guard(std::chrono::duration<double>(60));
      try {
        Rendezvous rendezvous(place(rank, 3, port), guard, {.join_s = kJoin}, std::move(own));
        rendezvous.meet({"all", {0, 1, 2}, "", ""});
        if (rank == victim) kill(getpid(), SIGKILL);
        rendezvous.gather("times", "x");
        wait_for_failure(guard);
      } catch (const Stopped&) {  // the guard knows why
      }
      const std::string named = victim == 0 ? "rank 0 at 127.0.0.1" : "rank 2 (";
      _exit(guard.failure().rfind(named, 0) == 0 && guard.failure().find("is gone") != std::string::npos ? 0
                                                                                                         : 1);
    }
    for (int rank = 0; rank < 3; ++rank) {
      int status = -1;
      ASSERT_EQ(waitpid(children[rank], &status, 0), children[rank]);
      EXPECT_EQ(WIFSIGNALED(status), rank == victim);
      if (rank != victim) {
        EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << rank;
      }
    }
  }
}

TEST(Rendezvous, RefusesAnotherRun) {
  const Program nothing = [](Rendezvous&, RunGuard& guard) { wait_for_failure(guard); };
  ProcessPlace other = place(1, 2, 0);
  other.run = "yesterday";
  EXPECT_THAT(outcomes({{place(0, 2, 0), nothing}, {other, nothing}}),
              Each(HasSubstr("belongs to the run \"yesterday\", rank 0 to \"test\"")));
}

TEST(Rendezvous, NamesThoseWhoDoNotCome) {
  const Program nothing = [](Rendezvous&, RunGuard& guard) { wait_for_failure(guard); };
  EXPECT_THAT(outcomes({{place(0, 4, 0), nothing}, {place(2, 4, 0), nothing}}, 0.5),
              Each(AllOf(HasSubstr("rank 1, rank 3 did not come to rank 0"), HasSubstr("within"))));
  // No rank 0 at all.
  Listener taken("127.0.0.1", 0);
  const uint16_t port = taken.port();
  taken = Listener("127.0.0.1", 0);
  RunGuard guard(std::chrono::duration<double>(1));
  try {
    Rendezvous(place(1, 2, port), guard, {.join_s = 0.2});
    FAIL();
  } catch (const std::runtime_error& error) {
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr("rank 0 at 127.0.0.1:" + std::to_string(port)), HasSubstr("is not there")));
  }
}

}  // namespace
}  // namespace stp
