// Calls that cannot come to an end, and many groups at once.
#include "stp/cpu/local_call.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "stp/cpu/cpu_backend.h"

namespace stp {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr double kSoon = 0.3, kNever = 3600;  // seconds

// Two ranks with a stream each and one group.
struct Pair {
  explicit Pair(double deadline_s) : backend(make_cpu_backend({.world_size = 2, .deadline_s = deadline_s})) {
    for (int rank = 0; rank < 2; ++rank) {
      streams.push_back(backend->device(rank).make_stream("tp", StreamPriority::communication));
      ends.push_back(backend->communicator("pair", {0, 1}, rank));
    }
  }
  Tensor tensor(int rank, int64_t rows, int64_t columns, DType type = DType::f32) {
    return backend->device(rank).allocate(*streams[rank], MemoryKind::working, type, rows, columns);
  }
  // Both ranks' waits end, with this failure.
  std::string failure() {
    for (int rank = 0; rank < 2; ++rank) EXPECT_THROW(backend->device(rank).synchronize(), Stopped);
    return backend->guard().failure();
  }

  std::unique_ptr<Backend> backend;
  std::vector<std::unique_ptr<Stream>> streams;
  std::vector<std::unique_ptr<Communicator>> ends;
};

TEST(LocalCall, AMissingMemberEndsTheRunAndIsNamed) {
  Pair pair(kSoon);
  pair.streams[0]->begin(5);
  pair.ends[0]->all_reduce(*pair.streams[0], Reduce::sum, pair.tensor(0, 2, 3));
  // Another stream of the rank that waits behind it must not be the one that is blamed.
  const auto compute = pair.backend->device(0).make_stream("compute", StreamPriority::compute);
  compute->wait(pair.streams[0]->record());
  EXPECT_THROW(pair.backend->device(0).synchronize(), Stopped);
  EXPECT_THAT(pair.backend->guard().failure(), AllOf(HasSubstr("rank 0, tp, op 5"), HasSubstr("group pair"),
                                                     HasSubstr("for rank 1"), HasSubstr("0.3 s")));
}

TEST(LocalCall, AReceiveWithoutASendEndsTheRun) {
  Pair pair(kSoon);
  pair.ends[1]->receive(*pair.streams[1], pair.tensor(1, 2, 3), 0);
  EXPECT_THROW(pair.backend->device(1).synchronize(), Stopped);
  EXPECT_THAT(pair.backend->guard().failure(),
              AllOf(HasSubstr("rank 1, tp"), HasSubstr("group pair"), HasSubstr("for rank 0")));
}

TEST(LocalCall, ASendWithoutAReceiveEndsTheRun) {
  Pair pair(kSoon);
  pair.ends[0]->send(*pair.streams[0], pair.tensor(0, 2, 3), 1);
  EXPECT_THROW(pair.backend->device(0).synchronize(), Stopped);
  EXPECT_THAT(pair.backend->guard().failure(), AllOf(HasSubstr("rank 0, tp"), HasSubstr("for rank 1")));
}

// What two members do that does not fit together, and what the failure must say.
struct Mismatch {
  std::string name;
  std::function<void(Pair&)> calls;
  std::vector<std::string> named;
};

class Mismatches : public testing::TestWithParam<Mismatch> {};

TEST_P(Mismatches, FailTheRunAndNameBoth) {
  Pair pair(kNever);
  GetParam().calls(pair);
  const std::string failure = pair.failure();
  for (const std::string& part : GetParam().named) EXPECT_THAT(failure, HasSubstr(part));
  EXPECT_THAT(failure, AllOf(HasSubstr("group pair"), HasSubstr("rank 0"), HasSubstr("rank 1")));
}

INSTANTIATE_TEST_SUITE_P(
    LocalCall, Mismatches,
    testing::Values(Mismatch{"Size",
                             [](Pair& pair) {
                               for (int rank = 0; rank < 2; ++rank)
                                 pair.ends[rank]->all_reduce(*pair.streams[rank], Reduce::sum,
                                                             pair.tensor(rank, 2, 3 + rank));
                             },
                             {"2 x 3 f32", "2 x 4 f32"}},
                    Mismatch{"Shape",
                             [](Pair& pair) {
                               for (int rank = 0; rank < 2; ++rank)
                                 pair.ends[rank]->all_reduce(*pair.streams[rank], Reduce::sum,
                                                             pair.tensor(rank, 2 + rank, 3 - rank));
                             },
                             {"2 x 3 f32", "3 x 2 f32"}},
                    Mismatch{"Type",
                             [](Pair& pair) {
                               for (int rank = 0; rank < 2; ++rank)
                                 pair.ends[rank]->all_reduce(
                                     *pair.streams[rank], Reduce::sum,
                                     pair.tensor(rank, 2, 3, rank ? DType::f64 : DType::f32));
                             },
                             {"2 x 3 f32", "2 x 3 f64"}},
                    Mismatch{"Reduction",
                             [](Pair& pair) {
                               for (int rank = 0; rank < 2; ++rank)
                                 pair.ends[rank]->all_reduce(*pair.streams[rank],
                                                             rank == 0 ? Reduce::sum : Reduce::maximum,
                                                             pair.tensor(rank, 2, 3));
                             },
                             {"(sum)", "(maximum)"}},
                    Mismatch{"Call",
                             [](Pair& pair) {
                               pair.ends[0]->all_reduce(*pair.streams[0], Reduce::sum, pair.tensor(0, 2, 3));
                               pair.ends[1]->all_gather(*pair.streams[1], pair.tensor(1, 2, 3),
                                                        pair.tensor(1, 4, 3));
                             },
                             {"all-reduce", "all-gather"}},
                    Mismatch{"Transfer",
                             [](Pair& pair) {
                               pair.ends[0]->send(*pair.streams[0], pair.tensor(0, 2, 3), 1);
                               pair.ends[1]->receive(*pair.streams[1], pair.tensor(1, 2, 5), 0);
                             },
                             {"2 x 3 f32", "2 x 5 f32"}}),
    [](const auto& each) { return each.param.name; });

TEST(LocalCall, APeerThatThrowsEndsItsPartnersWait) {
  Pair pair(kNever);
  pair.ends[0]->all_reduce(*pair.streams[0], Reduce::sum, pair.tensor(0, 2, 3));
  cpu_stream(*pair.streams[1]).enqueue([] { throw std::runtime_error("no luck"); });
  pair.ends[1]->all_reduce(*pair.streams[1], Reduce::sum, pair.tensor(1, 2, 3));
  EXPECT_EQ(pair.failure(), "rank 1, tp: no luck");
}

// The sum is made in the members' order, whoever comes last: 1e16 − 1e16 + 1 is 1 so; begun with any other
// member, or turned round, it is 0.
TEST(LocalCall, SumsAreInTheMembersOrder) {
  const std::vector<double> values{1e16, -1e16, 1};
  for (int last = 0; last < 3; ++last) {
    const auto backend = make_cpu_backend({.world_size = 3, .deadline_s = kNever});
    std::vector<std::unique_ptr<Stream>> streams;
    std::vector<std::unique_ptr<Communicator>> ends;
    std::vector<Tensor> tensors;
    for (int rank = 0; rank < 3; ++rank) {
      Device& device = backend->device(rank);
      streams.push_back(device.make_stream("tp", StreamPriority::communication));
      ends.push_back(backend->communicator("all", {0, 1, 2}, rank));
      tensors.push_back(device.allocate(*streams[rank], MemoryKind::working, DType::f64, 1, 1));
      device.upload(*streams[rank], tensors[rank], std::as_bytes(std::span(&values[rank], 1)));
    }
    for (int i = 1; i <= 3; ++i) {
      const int rank = (last + i) % 3;
      ends[rank]->all_reduce(*streams[rank], Reduce::sum, tensors[rank]);
    }
    for (int rank = 0; rank < 3; ++rank) {
      double sum = -1;
      backend->device(rank).download(*streams[rank], tensors[rank],
                                     std::as_writable_bytes(std::span(&sum, 1)));
      EXPECT_EQ(sum, 1) << "rank " << rank << ", last " << last;
    }
  }
}

// A grid of 2 x 2 ranks, each driven by a thread: all-reduces along the rows on one stream and, at once,
// transfers round the columns and gathers on another.
TEST(LocalCall, ManyGroupsAtOnce) {
  static constexpr int kRounds = 60;
  const auto backend = make_cpu_backend({.world_size = 4, .deadline_s = kNever});
  std::vector<std::thread> hosts;
  for (int rank = 0; rank < 4; ++rank)
    hosts.emplace_back([&backend, rank] {
      Device& device = backend->device(rank);
      const auto tp = device.make_stream("tp", StreamPriority::communication);
      const auto pp = device.make_stream("pp", StreamPriority::communication);
      const int row = rank / 2, column = rank % 2;
      const std::string r = "row" + std::to_string(row), c = "column" + std::to_string(column);
      const auto across = backend->communicator(r, {2 * row, 2 * row + 1}, column);
      const auto down = backend->communicator(c, {column, column + 2}, row);
      std::mt19937 engine(17);  // the same lengths on all ranks
      for (int round = 0; round < kRounds; ++round) {
        const int64_t length = round % 10 == 0 ? 50001 : 1 + engine() % 300;
        std::vector<double> mine(length, rank + 1), read(length);
        Tensor sum = device.allocate(*tp, MemoryKind::working, DType::f64, 1, length);
        device.upload(*tp, sum, std::as_bytes(std::span(mine)));
        across->all_reduce(*tp, Reduce::sum, sum);
        pp->wait(tp->record());
        Tensor got = device.allocate(*pp, MemoryKind::communication, DType::f64, 1, length);
        Tensor all = device.allocate(*pp, MemoryKind::communication, DType::f64, 2, length);
        if (row == 0) {
          down->send(*pp, sum, 1);
          down->receive(*pp, got, 1);
        } else {
          down->receive(*pp, got, 0);
          down->send(*pp, sum, 0);
        }
        down->all_gather(*pp, sum, all);
        device.download(*pp, got, std::as_writable_bytes(std::span(read)));
        // Rows hold ranks {0, 1} and {2, 3}, whose numbers are 1 + 2 and 3 + 4.
        ASSERT_EQ(read, std::vector<double>(length, row == 0 ? 7 : 3)) << "rank " << rank << " " << round;
        std::vector<double> both(2 * length);
        device.download(*pp, all, std::as_writable_bytes(std::span(both)));
        ASSERT_EQ(both.front(), 3);
        ASSERT_EQ(both[length - 1], 3);
        ASSERT_EQ(both[length], 7);
        ASSERT_EQ(both.back(), 7);
        device.release(*pp, all);
        device.release(*pp, got);
        device.release(*pp, sum);
      }
      device.synchronize();
      EXPECT_EQ(device.memory().held(), 0U);
      EXPECT_EQ(across->traffic().calls, kRounds);
      EXPECT_EQ(down->traffic().calls, 3 * kRounds);
      EXPECT_EQ(down->traffic().sent_bytes, across->traffic().all_reduce_bytes);
      EXPECT_EQ(down->traffic().all_gather_bytes, across->traffic().all_reduce_bytes);
    });
  for (std::thread& host : hosts) host.join();
  EXPECT_EQ(backend->guard().failure(), "");
}

}  // namespace
}  // namespace stp
