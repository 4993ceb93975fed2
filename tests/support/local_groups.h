// Tests of groups for any backend, with one process or several: collectives and transfers against plain sums
// of numbers that add up exactly, parts that do not fit, many groups at once. A test program includes this
// once and instantiates it for a backend:
//   INSTANTIATE_TEST_SUITE_P(Cpu, LocalGroups, testing::Values(GroupBackend{make}), {});
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "stp/device/backend.h"
#include "support/effort.h"
#include "support/refusal.h"

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

inline constexpr double kNever = 3600;  // seconds

// Ranks with a stream each, and the group of them all. `ranks` are those that this process drives.
struct World {
  World(const GroupBackend& which, int size, double deadline_s = 10)
      : backend(which.make({.world_size = size, .deadline_s = deadline_s, .poison = true})) {
    ranks = backend->ranks();
    std::vector<int> members(size);
    std::iota(members.begin(), members.end(), 0);
    for (const int rank : ranks)
      streams[rank] = device(rank).make_stream("tp", StreamPriority::communication);
    if (!ranks.empty()) group = backend->group("all", members);
  }
  Device& device(int rank) const { return backend->device(rank); }
  Stream& stream(int rank) const { return *streams.at(rank); }
  [[nodiscard]] bool drives(int rank) const {
    return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
  }

  [[nodiscard]] Tensor tensor(int rank, const std::vector<double>& values, int64_t rows,
                              DType type = DType::f64) const {
    Tensor made = device(rank).allocate(stream(rank), MemoryKind::working, type, rows,
                                        static_cast<int64_t>(values.size()) / rows);
    upload_doubles(device(rank), stream(rank), made, values);
    return made;
  }
  [[nodiscard]] std::vector<double> values(int rank, const Tensor& tensor) const {
    return download_doubles(device(rank), stream(rank), tensor);
  }
  [[nodiscard]] Part part(int rank, const Tensor& in, const Tensor& out) const {
    return {&stream(rank), in, out};
  }
  [[nodiscard]] Part part(int rank, const Tensor& both) const { return part(rank, both, both); }
  // Of each rank that this process drives, what `make` gives.
  template <typename Make>
  [[nodiscard]] std::vector<Part> parts(Make make) const {
    std::vector<Part> all;
    for (const int rank : ranks) all.push_back(make(rank));
    return all;
  }

  std::unique_ptr<Backend> backend;
  std::vector<int> ranks;
  std::map<int, std::unique_ptr<Stream>> streams;  // by rank
  std::unique_ptr<Group> group;
};

// Whole numbers: sums are exact in any order.
inline std::vector<double> numbers(int rank, int64_t count) {
  std::vector<double> values(count);
  for (int64_t i = 0; i < count; ++i) values[i] = static_cast<double>((rank + 1) * 1000003 % 977 + i % 331);
  return values;
}

// The same as the type can hold them and their sums: in bf16 small ones, in f64 with digits that f32 has not.
inline std::vector<double> numbers(int rank, int64_t count, DType type) {
  std::vector<double> values = numbers(rank, count);
  for (double& value : values) {
    if (type == DType::bf16) value = static_cast<double>(static_cast<int>(value) % 31);
    if (type == DType::f64) value += value * 0x1p-35;
  }
  return values;
}

// None; odd lengths and ones that GPUs load at once; one of more than one piece (of 2^14 on CPU).
inline constexpr int64_t kLengths[] = {0, 1, 7, 8, kStride > 1 ? 17001 : 40001};
inline constexpr DType kTypes[] = {DType::f64, DType::f32, DType::bf16};
inline constexpr int kSizes[] = {1, 2, 3, 4, 6, 8};

// Calls check(world, type, length) with a world of each size, and with each type and length.
template <typename Check>
void for_each_call(const GroupBackend& backend, Check check) {
  for (const int size : kSizes) {
    const World world(backend, size);
    for (const DType type : kTypes)
      for (const int64_t length : kLengths) {
        SCOPED_TRACE(std::to_string(size) + " ranks, " + std::to_string(length) + " " + to_string(type));
        if (!world.ranks.empty()) check(world, type, length);
      }
  }
}

TEST_P(LocalGroups, AllReducesSumsAndMaxima) {
  for_each_call(GetParam(), [](const World& world, DType type, int64_t length) {
    for (const Reduce reduce : {Reduce::sum, Reduce::maximum}) {
      const int64_t before = world.group->traffic(0).all_reduce_bytes;
      const std::vector<Part> parts = world.parts([&](int rank) {
        return world.part(rank, world.tensor(rank, numbers(rank, length, type), 1, type));
      });
      std::vector<double> expected = numbers(0, length, type);
      for (int rank = 1; rank < world.group->size(); ++rank) {
        const std::vector<double> own = numbers(rank, length, type);
        for (int64_t i = 0; i < length; ++i)
          expected[i] = reduce == Reduce::sum ? expected[i] + own[i] : std::max(expected[i], own[i]);
      }
      world.group->all_reduce(reduce, parts);
      for (size_t i = 0; i < parts.size(); ++i)
        ASSERT_EQ(world.values(world.ranks[i], parts[i].out), expected);
      EXPECT_EQ(world.group->traffic(0).all_reduce_bytes - before,
                world.group->size() > 1 ? length * static_cast<int64_t>(bytes_of(type)) : 0);
    }
  });
}

// In bf16 itself, 256 + 1 is 256 again.
TEST_P(LocalGroups, SumsOfBf16AreRoundedOnce) {
  const World world(GetParam(), 3);
  if (world.ranks.empty()) return;
  std::vector<Part> sums, pieces;
  for (const int rank : world.ranks) {
    const auto tensor = [&](int64_t rows) {
      return world.tensor(rank, std::vector<double>(rows, rank == 0 ? 256 : 1), rows, DType::bf16);
    };
    sums.push_back(world.part(rank, tensor(3)));
    pieces.push_back(world.part(rank, tensor(3), tensor(1)));
  }
  world.group->all_reduce(Reduce::sum, sums);
  world.group->reduce_scatter(pieces);
  for (size_t i = 0; i < sums.size(); ++i)
    for (const Tensor& tensor : {sums[i].out, pieces[i].out})
      for (const double value : world.values(world.ranks[i], tensor)) EXPECT_EQ(value, 258);
  EXPECT_EQ(world.group->traffic(0).all_reduce_bytes, 6);
  EXPECT_EQ(world.group->traffic(0).reduce_scatter_bytes, 6);
}

TEST_P(LocalGroups, GathersAndScatters) {
  for_each_call(GetParam(), [](const World& world, DType type, int64_t length) {
    const int size = world.group->size();
    const auto tensor = [&](int rank, const std::vector<double>& values, int64_t rows) {
      return world.tensor(rank, values, rows, type);
    };
    const auto gathered = world.parts([&](int rank) {
      return world.part(rank, tensor(rank, numbers(rank, 2 * length, type), 2),
                        tensor(rank, std::vector<double>(2 * length * size, -1), 2 * size));
    });
    const auto scattered = world.parts([&](int rank) {
      return world.part(rank, tensor(rank, numbers(rank, length * size, type), size),
                        tensor(rank, std::vector<double>(length, -1), 1));
    });
    world.group->all_gather(gathered);
    world.group->reduce_scatter(scattered);
    std::vector<double> all, sums(length * size);
    for (int from = 0; from < size; ++from) {
      const auto own = numbers(from, 2 * length, type), summands = numbers(from, length * size, type);
      all.insert(all.end(), own.begin(), own.end());
      for (size_t i = 0; i < sums.size(); ++i) sums[i] += summands[i];
    }
    for (size_t own = 0; own < gathered.size(); ++own) {
      const int rank = world.ranks[own];
      const auto begin = sums.begin() + rank * length;
      EXPECT_EQ(world.values(rank, gathered[own].out), all);
      EXPECT_EQ(world.values(rank, scattered[own].out), std::vector<double>(begin, begin + length));
    }
  });
}

TEST_P(LocalGroups, TransfersComeInTheirOrderOnTwoStreamsOrOne) {
  const World world(GetParam(), 2);
  if (world.ranks.empty()) return;
  const auto link = world.backend->group("link", {0, 1}, GroupUse::transfers);
  for (const bool one_stream : {false, true}) {
    if (one_stream && world.ranks.size() == 1) continue;
    std::vector<Tensor> received;
    for (int i = 0; i < 20; ++i) {
      std::vector<Part> parts;
      if (world.drives(0)) parts.push_back(world.part(0, world.tensor(0, numbers(i, 5), 1), {}));
      if (world.drives(1)) {
        received.push_back(world.tensor(1, std::vector<double>(5, -1), 1));
        parts.push_back(world.part(1, {}, received.back()));
      }
      if (one_stream) {
        parts.front().stream->wait(parts.back().stream->record());
        parts.back().stream = parts.front().stream;
      }
      link->transfer(parts);
      if (one_stream) world.stream(1).wait(parts.front().stream->record());
    }
    for (size_t i = 0; i < received.size(); ++i)
      EXPECT_EQ(world.values(1, received[i]), numbers(static_cast<int>(i), 5));
    for (const int rank : world.ranks) world.device(rank).synchronize();
  }
  if (world.ranks.size() == 2) {
    EXPECT_EQ(link->traffic(0).sent_bytes, 2 * 20 * 5 * 8);
    EXPECT_EQ(link->traffic(1).sent_bytes, 0);
  }
}

TEST_P(LocalGroups, ARingPassesOnToTheNextAllAtOnce) {
  for (const int size : kSizes) {
    if (size < 2) continue;
    const World world(GetParam(), size);
    if (world.ranks.empty()) continue;
    std::vector<int> members(size);
    std::iota(members.begin(), members.end(), 0);
    const auto ring = world.backend->group("ring", members, GroupUse::transfers);
    // What came is passed on, until each has its own again.
    std::vector<Part> parts = world.parts([&](int rank) {
      return world.part(rank, world.tensor(rank, numbers(rank, 7), 1),
                        world.tensor(rank, std::vector<double>(7, -1), 1));
    });
    for (int step = 1; step <= size; ++step) {
      ring->transfer(parts);
      for (size_t own = 0; own < parts.size(); ++own) {
        const int rank = world.ranks[own];
        EXPECT_EQ(world.values(rank, parts[own].out), numbers((rank + size - step % size) % size, 7));
        std::swap(parts[own].in, parts[own].out);
      }
    }
    EXPECT_EQ(ring->traffic(0).sent_bytes, size * 7 * 8);
    parts[0].out = parts[0].in;
    EXPECT_THROW(ring->transfer(parts), std::logic_error);
  }
}

// Blocks of as many rows for each, of other numbers of rows for each, also of none, and of more than a piece.
TEST_P(LocalGroups, AnAllToAllGivesEachMemberItsBlockOfEveryOther) {
  constexpr int64_t kColumns = 3;
  for (const int size : kSizes)
    for (const bool equal : {true, false}) {
      const World world(GetParam(), size);
      if (world.ranks.empty()) continue;
      const auto rows = [&](int from, int to) {
        return equal ? int64_t{5} : int64_t{(3 * from + 2 * to) % 4} * (from == 1 ? 3000 : 1);
      };
      const auto block = [&](int from, int to) { return numbers(16 * from + to, rows(from, to) * kColumns); };
      std::vector<Part> parts;
      std::vector<std::vector<double>> expected;
      std::vector<int64_t> leaving;
      for (const int rank : world.ranks) {
        Part part{&world.stream(rank), {}, {}};
        std::vector<double> in, out;
        for (int other = 0; other < size; ++other) {
          part.sent_rows.push_back(rows(rank, other));
          part.received_rows.push_back(rows(other, rank));
          const std::vector<double> sent = block(rank, other), received = block(other, rank);
          in.insert(in.end(), sent.begin(), sent.end());
          out.insert(out.end(), received.begin(), received.end());
        }
        const auto make = [&](const std::vector<double>& values) {
          Tensor made = world.device(rank).allocate(world.stream(rank), MemoryKind::working, DType::f64,
                                                    static_cast<int64_t>(values.size()) / kColumns, kColumns);
          world.device(rank).upload(world.stream(rank), made, std::as_bytes(std::span(values)));
          return made;
        };
        part.in = make(in);
        part.out = make(std::vector<double>(out.size(), -1));
        leaving.push_back(8 * (static_cast<int64_t>(in.size()) - rows(rank, rank) * kColumns));
        if (equal) part.sent_rows.clear(), part.received_rows.clear();
        parts.push_back(std::move(part));
        expected.push_back(std::move(out));
      }
      world.group->all_to_all(parts);
      for (size_t own = 0; own < parts.size(); ++own) {
        ASSERT_EQ(world.values(world.ranks[own], parts[own].out), expected[own]) << size << " " << equal;
        EXPECT_EQ(world.group->traffic(static_cast<int>(own)).sent_bytes, leaving[own]);
        EXPECT_EQ(world.group->traffic(static_cast<int>(own)).calls, 1);
      }
    }
}

TEST_P(LocalGroups, PartsThatDoNotFitAreRefusedAtTheCall) {
  const World world(GetParam(), 2);
  if (world.ranks.size() < 2) return;
  Group& group = *world.group;
  const auto of = [&](int rank, int64_t rows, int64_t columns) {
    return world.tensor(rank, std::vector<double>(rows * columns, 0), rows);
  };
  const auto refuses = [&](CallKind kind, const std::vector<Part>& parts) {
    EXPECT_THAT(error_of<std::logic_error>([&] {
                  group.give({kind, Reduce::sum, parts});
                }),
                AllOf(HasSubstr("group all"), HasSubstr(to_string(kind))));
  };
  refuses(CallKind::all_reduce, {world.part(0, of(0, 2, 3)), world.part(1, of(1, 2, 4))});
  refuses(CallKind::all_reduce, {world.part(0, of(0, 2, 3)), world.part(1, of(1, 3, 2))});
  refuses(CallKind::all_reduce, {world.part(0, of(0, 2, 3))});
  refuses(CallKind::all_reduce, {world.part(0, of(0, 2, 3), of(0, 2, 3)), world.part(1, of(1, 2, 3))});
  refuses(CallKind::all_gather,
          {world.part(0, of(0, 2, 3), of(0, 4, 3)), world.part(1, of(1, 2, 3), of(1, 2, 3))});
  refuses(CallKind::reduce_scatter,
          {world.part(0, of(0, 3, 3), of(0, 1, 3)), world.part(1, of(1, 3, 3), of(1, 1, 3))});
  const auto blocks = [&](int rank, std::vector<int64_t> sent, std::vector<int64_t> received) {
    Part part = world.part(rank, of(rank, 4, 3), of(rank, 4, 3));
    part.sent_rows = std::move(sent);
    part.received_rows = std::move(received);
    return part;
  };
  refuses(CallKind::all_to_all, {world.part(0, of(0, 3, 3), of(0, 4, 3)), blocks(1, {}, {})});
  refuses(CallKind::all_to_all, {world.part(0, of(0, 4, 3), of(0, 4, 2)), blocks(1, {}, {})});
  refuses(CallKind::all_to_all, {world.part(0, of(0, 4, 3)), blocks(1, {}, {})});
  refuses(CallKind::all_to_all, {blocks(0, {1, 3}, {}), blocks(1, {}, {})});
  refuses(CallKind::all_to_all, {blocks(0, {1, 2}, {}), blocks(1, {}, {1, 3})});
  refuses(CallKind::all_to_all, {blocks(0, {5, -1}, {}), blocks(1, {}, {-1, 5})});
  refuses(CallKind::all_to_all, {blocks(0, {4}, {}), blocks(1, {}, {})});
  refuses(CallKind::transfer, {world.part(0, of(0, 2, 3), {}), world.part(1, {}, of(1, 2, 5))});
  refuses(CallKind::transfer, {world.part(0, {}, of(0, 2, 3)), world.part(1, of(1, 2, 3), {})});
  Tensor released = of(0, 2, 3);
  const Tensor copy = released;
  world.device(0).release(world.stream(0), released);
  refuses(CallKind::all_reduce, {world.part(0, copy), world.part(1, of(1, 2, 3))});
}

// The sum is computed in the members' order: 1e16 − 1e16 + 1 is then 1, and 0 in any other order.
TEST_P(LocalGroups, SumsAreInTheMembersOrder) {
  const std::vector<double> values{1e16, -1e16, 1};
  const World world(GetParam(), 3);
  if (world.ranks.empty()) return;
  const std::vector<Part> parts = world.parts(
      [&](int rank) { return world.part(rank, world.tensor(rank, std::vector<double>{values[rank]}, 1)); });
  world.group->all_reduce(Reduce::sum, parts);
  for (size_t i = 0; i < parts.size(); ++i) EXPECT_EQ(world.values(world.ranks[i], parts[i].out)[0], 1) << i;
}

// A grid of 2 x 2 ranks: all-reduces along the rows on one stream and, at once, gathers along the columns on
// another. Each makes its calls in rounds of other lengths.
class GridOfGroups {
 public:
  explicit GridOfGroups(const World& world) : world_(world) {
    const auto make = [&](std::vector<std::unique_ptr<Group>>& groups, const std::vector<int>& members) {
      if (!local_members(members, world.ranks).empty())
        groups.push_back(world.backend->group("of two", members));
    };
    for (int i = 0; i < 2; ++i) {
      make(rows_, {2 * i, 2 * i + 1});
      make(columns_, {i, i + 2});
    }
    for (const int rank : world.ranks)
      pp_[rank] = world.device(rank).make_stream("pp", StreamPriority::communication);
  }

  void round(int64_t length) {
    lengths_.push_back(length);
    std::map<int, Tensor> sums, &all = gathered_.emplace_back();
    for (const int rank : world_.ranks) {
      sums[rank] = world_.tensor(rank, std::vector<double>(length, rank + 1), 1);
      all[rank] = world_.device(rank).allocate(*pp_[rank], MemoryKind::working, DType::f64, 2, length);
    }
    for (const auto& row : rows_)
      row->all_reduce(Reduce::sum, parts_of(*row, [&](int rank) { return world_.part(rank, sums[rank]); }));
    for (const int rank : world_.ranks) pp_[rank]->wait(world_.stream(rank).record());
    for (const auto& column : columns_)
      column->all_gather(parts_of(*column, [&](int rank) {
        return Part{pp_[rank].get(), sums[rank], all[rank]};
      }));
    for (const int rank : world_.ranks) world_.device(rank).release(*pp_[rank], sums[rank]);
  }

  // Rows hold ranks {0, 1} and {2, 3}, whose numbers are 1 + 2 and 3 + 4.
  void expect_sums() {
    for (size_t round = 0; round < lengths_.size(); ++round)
      for (const int rank : world_.ranks) {
        std::vector<double> expected(lengths_[round], 3);
        expected.resize(2 * expected.size(), 7);
        Tensor& gathered = gathered_[round][rank];
        ASSERT_EQ(download<double>(world_.device(rank), *pp_[rank], gathered), expected)
            << "rank " << rank << " " << round;
        world_.device(rank).release(*pp_[rank], gathered);
      }
    const int64_t bytes = 8 * std::accumulate(lengths_.begin(), lengths_.end(), int64_t{0});
    for (const auto& row : rows_) {
      EXPECT_EQ(row->traffic(0).calls, lengths_.size());
      EXPECT_EQ(row->traffic(0).all_reduce_bytes, bytes);
    }
    for (const auto& column : columns_) EXPECT_EQ(column->traffic(0).all_gather_bytes, bytes);
  }

 private:
  template <typename Make>
  static std::vector<Part> parts_of(const Group& group, Make make) {
    std::vector<Part> parts;
    for (const int member : group.local()) parts.push_back(make(group.members()[member]));
    return parts;
  }

  const World& world_;
  std::map<int, std::unique_ptr<Stream>> pp_;  // by rank
  std::vector<std::unique_ptr<Group>> rows_, columns_;
  std::vector<std::map<int, Tensor>> gathered_;  // by round and rank
  std::vector<int64_t> lengths_;
};

TEST_P(LocalGroups, ManyGroupsAtOnce) {
  const World world(GetParam(), 4, kNever);
  GridOfGroups grid(world);
  std::mt19937 engine(17);
  for (int round = 0; round < 60; ++round) grid.round(round % 10 == 0 ? 50001 : 1 + engine() % 300);
  grid.expect_sums();
  for (const int rank : world.ranks) {
    world.device(rank).synchronize();
    EXPECT_EQ(world.device(rank).memory().held(), 0U);
  }
  EXPECT_EQ(world.backend->guard().failure(), "");
}

}  // namespace stp::testing_support
