// What groups whose members meet in one process must do, whatever their devices: collectives and transfers
// against plain sums of numbers that add up exactly, calls that cannot come to an end, many groups at once. A
// test program includes this once and says of which backend:
//   INSTANTIATE_TEST_SUITE_P(Cpu, LocalGroups, testing::Values(GroupBackend{cpu::make_backend}), {});
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "stp/device/backend.h"
#include "stp/device/bfloat16.h"

namespace stp::testing_support {

using testing::AllOf;
using testing::HasSubstr;

struct GroupBackend {
  std::function<std::unique_ptr<Backend>(const BackendOptions&)> make;
  std::function<std::string()> lack = [] {
    return std::string();
  };  // why it cannot be tested here; "" if it can
};
inline void PrintTo(const GroupBackend&, std::ostream* out) { *out << "backend"; }

class LocalGroups : public testing::TestWithParam<GroupBackend> {
 protected:
  void SetUp() override {
    if (const std::string lack = GetParam().lack(); !lack.empty()) GTEST_SKIP() << lack;
  }
};

inline constexpr double kSoon = 0.3, kNever = 3600;  // seconds

// Ranks of a group, each with a stream and its end of the group.
class Group {
 public:
  Group(const GroupBackend& backend, int size)
      : backend_(backend.make({.world_size = size, .deadline_s = 10, .poison = true})) {
    std::vector<int> members;
    for (int rank = 0; rank < size; ++rank) members.push_back(rank);
    for (int rank = 0; rank < size; ++rank) {
      streams_.push_back(device(rank).make_stream("tp", StreamPriority::communication));
      ends_.push_back(backend_->communicator("tp", members, rank));
    }
  }
  [[nodiscard]] int size() const { return static_cast<int>(ends_.size()); }
  Device& device(int rank) { return backend_->device(rank); }
  Stream& stream(int rank) { return *streams_[rank]; }
  Communicator& end(int rank) { return *ends_[rank]; }

  Tensor tensor(int rank, const std::vector<double>& values, int64_t rows) {
    Tensor made = device(rank).allocate(stream(rank), MemoryKind::working, DType::f64, rows,
                                        static_cast<int64_t>(values.size()) / rows);
    device(rank).upload(stream(rank), made, std::as_bytes(std::span(values)));
    return made;
  }
  std::vector<double> values(int rank, const Tensor& tensor) {
    std::vector<double> read(tensor.elements());
    device(rank).download(stream(rank), tensor, std::as_writable_bytes(std::span(read)));
    return read;
  }

 private:
  std::unique_ptr<Backend> backend_;
  std::vector<std::unique_ptr<Stream>> streams_;
  std::vector<std::unique_ptr<Communicator>> ends_;
};

// Whole numbers: sums are exact in any order.
inline std::vector<double> numbers(int rank, int64_t count) {
  std::vector<double> values(count);
  for (int64_t i = 0; i < count; ++i) values[i] = static_cast<double>((rank + 1) * 1000003 % 977 + i % 331);
  return values;
}

// Odd lengths, one of more than one piece.
inline constexpr int64_t kLengths[] = {1, 7, 40001};

TEST_P(LocalGroups, AllReducesSumsAndMaxima) {
  for (const int size : {1, 2, 3, 4})
    for (const int64_t length : kLengths)
      for (const Reduce reduce : {Reduce::sum, Reduce::maximum}) {
        Group group(GetParam(), size);
        std::vector<Tensor> tensors;
        for (int rank = 0; rank < size; ++rank) {
          tensors.push_back(group.tensor(rank, numbers(rank, length), 1));
          group.end(rank).all_reduce(group.stream(rank), reduce, tensors.back());
        }
        std::vector<double> expected = numbers(0, length);
        for (int rank = 1; rank < size; ++rank)
          for (int64_t i = 0; i < length; ++i) {
            const double other = numbers(rank, length)[i];
            expected[i] = reduce == Reduce::sum ? expected[i] + other : std::max(expected[i], other);
            if (length > 100) i += 97;  // some will do
          }
        for (int rank = 0; rank < size; ++rank) {
          const auto found = group.values(rank, tensors[rank]);
          for (int64_t i = 0; i<length; i += length> 100 ? 98 : 1)
            ASSERT_EQ(found[i], expected[i]) << size << " " << length << " " << i;
        }
        if (size > 1) {
          EXPECT_EQ(group.end(0).traffic().all_reduce_bytes, length * 8);
        }
      }
}

// In bf16 itself, 256 + 1 is 256 again.
TEST_P(LocalGroups, SumsOfBf16AreRoundedOnce) {
  Group group(GetParam(), 3);
  std::vector<Tensor> sums, pieces;
  for (int rank = 0; rank < 3; ++rank) {
    const std::vector<Bfloat16> values(3, Bfloat16(rank == 0 ? 256.0F : 1.0F));
    for (int i = 0; i < 2; ++i) {
      sums.push_back(group.device(rank).allocate(group.stream(rank), MemoryKind::working, DType::bf16, 3, 1));
      group.device(rank).upload(group.stream(rank), sums.back(), std::as_bytes(std::span(values)));
    }
    pieces.push_back(group.device(rank).allocate(group.stream(rank), MemoryKind::working, DType::bf16, 1, 1));
    group.end(rank).all_reduce(group.stream(rank), Reduce::sum, sums[2 * rank]);
    group.end(rank).reduce_scatter(group.stream(rank), sums[2 * rank + 1], pieces.back());
  }
  for (int rank = 0; rank < 3; ++rank)
    for (const Tensor& tensor : {sums[2 * rank], pieces[rank]}) {
      std::vector<Bfloat16> found(tensor.elements());
      group.device(rank).download(group.stream(rank), tensor, std::as_writable_bytes(std::span(found)));
      for (const Bfloat16 value : found) EXPECT_EQ(value, 258);
    }
  EXPECT_EQ(group.end(0).traffic().all_reduce_bytes, 6);
}

TEST_P(LocalGroups, GathersAndScatters) {
  for (const int size : {1, 2, 3}) {
    Group group(GetParam(), size);
    std::vector<Tensor> gathered, scattered;
    for (int rank = 0; rank < size; ++rank) {
      const Tensor in = group.tensor(rank, numbers(rank, 10), 2);
      gathered.push_back(group.tensor(rank, std::vector<double>(10 * size, -1), 2 * size));
      group.end(rank).all_gather(group.stream(rank), in, gathered.back());
      const Tensor sum = group.tensor(rank, numbers(rank, 6 * size), size);
      scattered.push_back(group.tensor(rank, std::vector<double>(6, -1), 1));
      group.end(rank).reduce_scatter(group.stream(rank), sum, scattered.back());
    }
    for (int rank = 0; rank < size; ++rank) {
      const auto all = group.values(rank, gathered[rank]), piece = group.values(rank, scattered[rank]);
      for (int from = 0; from < size; ++from)
        for (int64_t i = 0; i < 10; ++i) EXPECT_EQ(all[from * 10 + i], numbers(from, 10)[i]);
      for (int64_t i = 0; i < 6; ++i) {
        double sum = 0;
        for (int from = 0; from < size; ++from) sum += numbers(from, 6 * size)[rank * 6 + i];
        EXPECT_EQ(piece[i], sum);
      }
    }
  }
}

TEST_P(LocalGroups, TheNthSendMeetsTheNthReceive) {
  Group group(GetParam(), 2);
  std::vector<Tensor> received;
  for (int i = 0; i < 20; ++i) {
    group.end(0).send(group.stream(0), group.tensor(0, numbers(i, 5), 1), 1);
    received.push_back(group.tensor(1, std::vector<double>(5, -1), 1));
    group.end(1).receive(group.stream(1), received.back(), 0);
  }
  for (int i = 0; i < 20; ++i) EXPECT_EQ(group.values(1, received[i]), numbers(i, 5));
  group.device(0).synchronize();
  EXPECT_EQ(group.end(0).traffic().sent_bytes, 20 * 5 * 8);
}

// Two ranks with a stream each and one group.
struct Pair {
  Pair(const GroupBackend& which, double deadline_s)
      : backend(which.make({.world_size = 2, .deadline_s = deadline_s})) {
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
    for (int rank = 0; rank < 2; ++rank) EXPECT_THROW(backend->device(rank).synchronize(), Cancelled);
    return backend->guard().failure();
  }

  std::unique_ptr<Backend> backend;
  std::vector<std::unique_ptr<Stream>> streams;
  std::vector<std::unique_ptr<Communicator>> ends;
};

TEST_P(LocalGroups, AMissingMemberEndsTheRunAndIsNamed) {
  Pair pair(GetParam(), kSoon);
  pair.streams[0]->begin(5);
  pair.ends[0]->all_reduce(*pair.streams[0], Reduce::sum, pair.tensor(0, 2, 3));
  // Another stream of the rank that waits behind it must not be the one that is blamed.
  const auto compute = pair.backend->device(0).make_stream("compute", StreamPriority::compute);
  compute->wait(pair.streams[0]->record());
  EXPECT_THROW(pair.backend->device(0).synchronize(), Cancelled);
  EXPECT_THAT(pair.backend->guard().failure(),
              AllOf(HasSubstr("rank 0, tp, op 5"), HasSubstr("group pair"), HasSubstr("for rank 1")));
}

TEST_P(LocalGroups, AReceiveWithoutASendEndsTheRun) {
  Pair pair(GetParam(), kSoon);
  pair.ends[1]->receive(*pair.streams[1], pair.tensor(1, 2, 3), 0);
  EXPECT_THROW(pair.backend->device(1).synchronize(), Cancelled);
  EXPECT_THAT(pair.backend->guard().failure(),
              AllOf(HasSubstr("rank 1, tp"), HasSubstr("group pair"), HasSubstr("for rank 0")));
}

TEST_P(LocalGroups, ASendWithoutAReceiveEndsTheRun) {
  Pair pair(GetParam(), kSoon);
  pair.ends[0]->send(*pair.streams[0], pair.tensor(0, 2, 3), 1);
  EXPECT_THROW(pair.backend->device(0).synchronize(), Cancelled);
  EXPECT_THAT(pair.backend->guard().failure(), AllOf(HasSubstr("rank 0, tp"), HasSubstr("for rank 1")));
}

// What two members do that does not fit together, and what the failure must say.
struct Mismatch {
  std::string name;
  std::function<void(Pair&)> calls;
  std::vector<std::string> named;
};

inline std::vector<Mismatch> mismatches() {
  return {Mismatch{"Size",
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
                       pair.ends[rank]->all_reduce(*pair.streams[rank], Reduce::sum,
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
                     pair.ends[1]->all_gather(*pair.streams[1], pair.tensor(1, 2, 3), pair.tensor(1, 4, 3));
                   },
                   {"all-reduce", "all-gather"}},
          Mismatch{"Transfer",
                   [](Pair& pair) {
                     pair.ends[0]->send(*pair.streams[0], pair.tensor(0, 2, 3), 1);
                     pair.ends[1]->receive(*pair.streams[1], pair.tensor(1, 2, 5), 0);
                   },
                   {"2 x 3 f32", "2 x 5 f32"}}};
}

TEST_P(LocalGroups, CallsThatDoNotFitTogetherFailTheRunAndNameBoth) {
  for (const Mismatch& mismatch : mismatches()) {
    SCOPED_TRACE(mismatch.name);
    Pair pair(GetParam(), kNever);
    mismatch.calls(pair);
    const std::string failure = pair.failure();
    for (const std::string& part : mismatch.named) EXPECT_THAT(failure, HasSubstr(part));
    EXPECT_THAT(failure, AllOf(HasSubstr("group pair"), HasSubstr("rank 0"), HasSubstr("rank 1")));
  }
}

// The sum is made in the members' order, whoever comes last: 1e16 − 1e16 + 1 is 1 so; begun with any other
// member, or turned round, it is 0.
TEST_P(LocalGroups, SumsAreInTheMembersOrder) {
  const std::vector<double> values{1e16, -1e16, 1};
  for (int last = 0; last < 3; ++last) {
    const auto backend = GetParam().make({.world_size = 3, .deadline_s = kNever});
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
TEST_P(LocalGroups, ManyGroupsAtOnce) {
  static constexpr int kRounds = 60;
  const auto backend = GetParam().make({.world_size = 4, .deadline_s = kNever});
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

}  // namespace stp::testing_support
