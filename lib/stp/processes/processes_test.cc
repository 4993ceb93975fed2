#include "stp/processes/processes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <numeric>
#include <thread>

#include "stp/base/error.h"
#include "stp/base/file_descriptor.h"
#include "stp/processes/tcp_processes.h"

namespace stp {
namespace {

using testing::ElementsAre;

TEST(Processes, AloneHasAllTexts) {
  Processes alone;
  EXPECT_THAT(alone.gather("mine"), ElementsAre("mine"));
  EXPECT_EQ(alone.broadcast("mine"), "mine");
  EXPECT_TRUE(alone.is_root());
  EXPECT_EQ(alone.count(), 1);
}

TEST(Processes, EveryRankHasOneProcessAndSharesDifferByOneAtMost) {
  EXPECT_THAT(ranks_of_process(8, 1, 2), ElementsAre(4, 5, 6, 7));
  EXPECT_THAT(ranks_of_process(4, 0, 8), ElementsAre(0));
  EXPECT_THAT(ranks_of_process(4, 1, 8), testing::IsEmpty());
  for (int world = 1; world <= 12; ++world)
    for (int count = 1; count <= 12; ++count) {
      std::vector<int> all;
      for (int process = 0; process < count; ++process) {
        const std::vector<int> ranks = ranks_of_process(world, process, count);
        EXPECT_GE(ranks.size(), world / count);
        EXPECT_LE(ranks.size(), (world + count - 1) / count);
        for (const int rank : ranks) EXPECT_EQ(process_of_rank(rank, world, count), process);
        all.insert(all.end(), ranks.begin(), ranks.end());
      }
      std::vector<int> expected(world);
      std::iota(expected.begin(), expected.end(), 0);
      EXPECT_EQ(all, expected);
    }
}

// In a process of its own, whose environment `name` is in; it ends with the number of processes, or with 2.
[[noreturn]] void join(const char* name, const char* value) {
  setenv(name, value, 1);
  try {
    std::_Exit(join_processes(1)->count());
  } catch (const InputError& error) {
    std::fprintf(stderr, "%s\n", error.what());
    std::_Exit(2);  // at once: MPI leaks memory
  }
}

TEST(Processes, WithoutALauncherThereIsOne) {
  EXPECT_EXIT(join("UNKNOWN_SIZE", "2"), testing::ExitedWithCode(1), "");
  EXPECT_EXIT(join("OMPI_COMM_WORLD_SIZE", "1"), testing::ExitedWithCode(1), "");
}

TEST(Processes, ALauncherMustSayHowManyItStarted) {
  for (const char* count : {"", "0", "-2", "two", "2x", "99999999999"})
    EXPECT_EXIT(join("WORLD_SIZE", count), testing::ExitedWithCode(2),
                "WORLD_SIZE: .* is not a number of processes; ");
}

// A socket that has a free port of this machine, `here`. While it is open, one that is made with SO_REUSEADDR
// may listen there, but nobody is given that port for another connection.
FileDescriptor bound(sockaddr_in& here) {
  FileDescriptor made(socket(AF_INET, SOCK_STREAM, 0));
  const int yes = 1;
  setsockopt(made.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  here = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
  socklen_t length = sizeof here;
  bind(made.get(), reinterpret_cast<sockaddr*>(&here), length);
  getsockname(made.get(), reinterpret_cast<sockaddr*>(&here), &length);
  return made;
}

using Frame = std::array<char, 24>;  // without bytes

// Joins, as process 1 of two, a process 0 that makes its answer of the first frame, and then does nothing.
// `process`: that one's end of the connection.
auto join_one_that_answers(const std::function<void(Frame&)>& answer, int& process) {
  sockaddr_in here{};
  const FileDescriptor relay = bound(here);
  listen(relay.get(), 1);
  std::thread answering([&] {
    process = accept(relay.get(), nullptr, nullptr);
    Frame frame{};
    recv(process, frame.data(), frame.size(), MSG_WAITALL);
    answer(frame);
    send(process, frame.data(), frame.size(), 0);
  });
  auto all = join_by_tcp({"127.0.0.1", ntohs(here.sin_port), 1, 2, 0}, 1000);
  answering.join();
  return all;
}

TEST(Processes, AnotherProgramOnThePortIsNamed) {
  const auto join_web_server = [] {
    int process = -1;
    join_one_that_answers(
        [](Frame& frame) { std::ranges::copy_n("HTTP/1.1 400 Bad Request", 24, frame.begin()); }, process);
  };
  EXPECT_EXIT(join_web_server(), testing::ExitedWithCode(1),
              "MASTER_PORT is no process of this run; use a free port");
}

TEST(Processes, OneThatIsSendingCanEndAllTheSame) {
  const auto end_while_sending = [] {
    int process = -1;
    // The kind after hello is a welcome.
    const auto all = join_one_that_answers([](Frame& frame) { ++frame[0]; }, process);
    std::vector<std::byte> bytes(size_t{1} << 26);  // more than the system takes
    const std::array message{Message{0, bytes.data(), bytes.size()}};
    std::thread([&] { all->start({0, 0}, 0, message, {}); }).detach();
    for (int unread = 0; unread == 0;) ioctl(process, FIONREAD, &unread);
    all->abort("it ends", 3);
  };
  EXPECT_EXIT(end_while_sending(), testing::ExitedWithCode(3), "it ends");
}

TEST(Processes, ALongTextIsSentInPieces) {
  const auto send_one = [] {
    int process = -1;
    const auto all = join_one_that_answers([](Frame& frame) { ++frame[0]; }, process);
    std::thread([&] { all->gather(std::string(size_t{1} << 25, 'x')); }).detach();
    std::array<uint64_t, 3> head{};
    recv(process, head.data(), sizeof head, MSG_WAITALL);
    std::_Exit(head[2] == 1 << 24 ? 3 : 4);
  };
  EXPECT_EXIT(send_one(), testing::ExitedWithCode(3), "");
}

TEST(Processes, ATextMayTakeLongerThanAllDeadlines) {
  constexpr uint64_t kPieces = 18, kPiece = 1 << 18;
  const auto gather = [] {
    sockaddr_in here{};
    const FileDescriptor held = bound(here);
    std::thread([here] {
      const FileDescriptor one(socket(AF_INET, SOCK_STREAM, 0));
      while (connect(one.get(), reinterpret_cast<const sockaddr*>(&here), sizeof here) != 0) usleep(1000);
      struct {
        uint32_t kind;
        int32_t peer;
        uint64_t tag, bytes;
      } hello{0x73747031, 1, 2, 0}, message{hello.kind + 2, 0, ~uint64_t{0}, kPieces * kPiece};
      send(one.get(), &hello, sizeof hello, 0);
      send(one.get(), &message, sizeof message, 0);
      for (uint64_t i = 0; i < kPieces; ++i) {
        usleep(200'000);
        send(one.get(), std::string(kPiece, 'x').data(), kPiece, 0);
      }
      pause();
    }).detach();
    const auto all =
        join_by_tcp({"127.0.0.1", ntohs(here.sin_port), 0, 2, 0}, 0.5);  // texts wait for six deadlines
    std::_Exit(all->gather("")[1].size() == kPieces * kPiece ? 3 : 4);
  };
  EXPECT_EXIT(gather(), testing::ExitedWithCode(3), "");
}

// A name may mean a loopback address on process 0's own machine, and come to be known only later. No DNS is
// asked for one with an empty part.
TEST(Processes, ANameIsAwaitedAndMeansAllAddressesOfItsMachine) {
  const auto join_by_a_name = [](int index, double deadline_s) {
    sockaddr_in here{};
    const FileDescriptor held = bound(here);
    std::thread([here] {
      const FileDescriptor other(socket(AF_INET, SOCK_STREAM, 0));
      while (connect(other.get(), reinterpret_cast<const sockaddr*>(&here), sizeof here) != 0) usleep(1000);
      std::_Exit(7);
    }).detach();
    const auto start = std::chrono::steady_clock::now();
    try {
      join_by_tcp({"stp..invalid", ntohs(here.sin_port), index, 2, 0}, deadline_s);
    } catch (const InputError& error) {
      std::fprintf(stderr, "%s\n", error.what());
      std::_Exit(std::chrono::steady_clock::now() - start < std::chrono::milliseconds(600) ? 3 : 2);
    }
  };
  EXPECT_EXIT(join_by_a_name(0, 10), testing::ExitedWithCode(7), "");
  EXPECT_EXIT(join_by_a_name(1, 0.1), testing::ExitedWithCode(2),
              "MASTER_ADDR: \"stp..invalid\" is not found");
}

// As by torchrun, or by the mpirun of another MPI.
TEST(Processes, StartedWithoutMpiAreRefused) {
  EXPECT_EXIT(join("WORLD_SIZE", "2"), testing::ExitedWithCode(2), "launcher: started 2 processes, ");
}

// As torchrun says how they meet; what it says wrongly is named.
TEST(Processes, StartedWithATaskToMeetAreRefusedWhatTheyCannotFind) {
  const auto join_as = [](const std::map<const char*, const char*>& told) {
    for (const auto& [name, value] : told) setenv(name, value, 1);
    join("WORLD_SIZE", "2");
  };
  const char *const host = "127.0.0.1", *const port = "29519";
  EXPECT_EXIT(join_as({{"RANK", "2"}, {"MASTER_ADDR", host}, {"MASTER_PORT", port}}),
              testing::ExitedWithCode(2), "RANK: \"2\" is not the number of one of WORLD_SIZE processes");
  EXPECT_EXIT(join_as({{"RANK", "1"}, {"MASTER_ADDR", host}, {"MASTER_PORT", "x"}}),
              testing::ExitedWithCode(2), "MASTER_PORT: \"x\" is not a port");
  EXPECT_EXIT(join_as({{"RANK", "0"}, {"MASTER_ADDR", "192.0.2.1"}, {"MASTER_PORT", port}}),
              testing::ExitedWithCode(2),
              "MASTER_PORT: 192.0.2.1:29519 cannot be opened: .*choose a free port");
  // torchrun's agent may have the port itself.
  EXPECT_EXIT(join_as({{"RANK", "0"},
                       {"MASTER_ADDR", "192.0.2.1"},
                       {"MASTER_PORT", port},
                       {"TORCHELASTIC_USE_AGENT_STORE", "True"}}),
              testing::ExitedWithCode(2), "192.0.2.1:29520");
}

}  // namespace
}  // namespace stp
