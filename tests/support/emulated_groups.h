// Tests of the groups of one rank alone, whose links are emulated, for any backend: the results of its calls.
// A test program includes this once and instantiates it for a backend:
//   INSTANTIATE_TEST_SUITE_P(Cpu, EmulatedGroups, testing::Values(ReplayBackend{make, DType::f64}));
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "stp/device/backend.h"
#include "stp/emulation/emulated_group.h"
#include "support/effort.h"

namespace stp::testing_support {

struct ReplayBackend {
  std::function<std::unique_ptr<Backend>(const BackendOptions&, const Replay&)> make;
  DType type;  // of tensors
  std::function<std::string()> lack = [] {
    return std::string();
  };  // why it cannot be tested here; "" if it can
};
inline void PrintTo(const ReplayBackend&, std::ostream* out) { *out << "backend"; }

class EmulatedGroups : public testing::TestWithParam<ReplayBackend> {
 protected:
  void SetUp() override {
    if (const std::string lack = GetParam().lack(); !lack.empty()) GTEST_SKIP() << lack;
    start({});
  }
  /// Rank 4 of six.
  void start(CallTime time, double deadline_s = 20) {
    const auto times = [this, time](CallKind kind, double bytes, const std::vector<int>& members) {
      asked.emplace_back(kind, bytes, members);
      return time;
    };
    stream.reset();
    backend = GetParam().make({.world_size = 6, .deadline_s = deadline_s, .poison = true},
                              {.rank = 4, .times = times});
    stream = backend->device(4).make_stream("tp", StreamPriority::communication);
    group = backend->group("tp", {2, 4, 5});
    outgoing = backend->group("p2p", {4, 5}, GroupUse::transfers);
    incoming = backend->group("p2p", {2, 4}, GroupUse::transfers);
  }
  Tensor tensor(const std::vector<double>& values, int64_t rows) {
    const Tensor made = backend->device(4).allocate(*stream, MemoryKind::working, GetParam().type, rows,
                                                    static_cast<int64_t>(values.size()) / rows);
    upload_doubles(backend->device(4), *stream, made, values);
    return made;
  }
  [[nodiscard]] std::vector<Part> part(const Tensor& in, const Tensor& out) const {
    return {{stream.get(), in, out}};
  }
  void reduce(const Tensor& tensor) { group->all_reduce(Reduce::sum, part(tensor, tensor)); }
  void send(const Tensor& tensor) { outgoing->transfer(part(tensor, {})); }
  void receive(const Tensor& tensor) { incoming->transfer(part({}, tensor)); }
  std::vector<double> values(const Tensor& tensor) {
    return download_doubles(backend->device(4), *stream, tensor);
  }

  /// Bytes of so many elements.
  static int64_t bytes(int64_t elements) {
    return elements * static_cast<int64_t>(bytes_of(GetParam().type));
  }

  using Asked = std::tuple<CallKind, double, std::vector<int>>;
  /// Of the group, with so many elements.
  static Asked call(CallKind kind, int64_t elements) {
    return {kind, static_cast<double>(bytes(elements)), {2, 4, 5}};
  }

  std::vector<Asked> asked;
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Stream> stream;
  std::unique_ptr<Group> group, outgoing, incoming;
};

inline std::vector<double> ramp(int64_t count) {
  std::vector<double> made(count);
  for (int64_t i = 0; i < count; ++i) made[i] = static_cast<double>(i) + 0.5;
  return made;
}

TEST_P(EmulatedGroups, IsOneRankOfAWorld) {
  EXPECT_EQ(backend->world_size(), 6);
  EXPECT_THAT(backend->ranks(), testing::ElementsAre(4));
  EXPECT_EQ(group->size(), 3);
  EXPECT_THAT(group->local(), testing::ElementsAre(1));
}

TEST_P(EmulatedGroups, CollectivesMoveTheRanksOwnNumbers) {
  for (const int64_t count : {3, 300'000}) {  // more than one piece
    const Tensor reduced = tensor(ramp(count), 1);
    reduce(reduced);
    EXPECT_EQ(values(reduced), ramp(count));

    const Tensor all = tensor(std::vector<double>(3 * count, -1), 3);
    group->all_gather(part(tensor(ramp(count), 1), all));
    const auto gathered = values(all);
    for (int64_t i = 0; i < 3 * count; ++i) ASSERT_EQ(gathered[i], static_cast<double>(i % count) + 0.5);

    const Tensor mine = tensor(std::vector<double>(count, -1), 1);
    group->reduce_scatter(part(tensor(ramp(3 * count), 3), mine));
    const auto scattered = values(mine);
    for (int64_t i = 0; i < count; ++i) ASSERT_EQ(scattered[i], static_cast<double>(count + i) + 0.5);
  }
  EXPECT_EQ(group->traffic(0).all_reduce_bytes, bytes(300'003));
  EXPECT_EQ(group->traffic(0).all_gather_bytes, bytes(300'003));
  EXPECT_EQ(group->traffic(0).reduce_scatter_bytes, 3 * bytes(300'003));
  EXPECT_EQ(group->traffic(0).calls, 6);
  EXPECT_EQ(asked[0], call(CallKind::all_reduce, 3));
  EXPECT_EQ(asked[1], call(CallKind::all_gather, 9));
  EXPECT_EQ(asked[2], call(CallKind::reduce_scatter, 9));
}

// What comes is what goes, then received numbers.
TEST_P(EmulatedGroups, AnAllToAllFillsItsOutput) {
  for (const int64_t received : {6, 9, 3}) {
    const Tensor out = tensor(std::vector<double>(received, NAN), received);
    Part blocks{stream.get(), tensor(ramp(6), 6), out, {1, 2, 3}, {received - 3, 2, 1}};
    group->all_to_all({&blocks, 1});
    const auto got = values(out);
    for (int64_t i = 0; i < received; ++i) {
      EXPECT_TRUE(std::isfinite(got[i]));
      if (i < 6) {
        EXPECT_EQ(got[i], static_cast<double>(i) + 0.5);
      }
    }
    EXPECT_EQ(asked.back(), call(CallKind::all_to_all, received > 6 ? 9 : 6));
  }
  EXPECT_EQ(group->traffic(0).sent_bytes, bytes(12));
}

TEST_P(EmulatedGroups, ReceivedNumbersAreSmallAndFinite) {
  for (const DType type : {DType::f32, GetParam().type, DType::bf16}) {
    const int64_t columns = kStride > 1 ? 50'000 : 200'000;  // of f64 at least more than one piece
    const Tensor out = backend->device(4).allocate(*stream, MemoryKind::working, type, 3, columns);
    upload_doubles(backend->device(4), *stream, out, {NAN});
    receive(out);
    double largest = 0, squares = 0;  // one number that is not finite makes `squares` so
    for (const double value : values(out)) {
      largest = std::max(largest, std::abs(value));
      squares += value * value;
    }
    EXPECT_LT(largest, 0.01);
    EXPECT_TRUE(std::isfinite(squares));
    EXPECT_GT(std::sqrt(squares / static_cast<double>(out.elements())), 0.003);
  }
  EXPECT_EQ(incoming->traffic(0).sent_bytes, 0);
}

TEST_P(EmulatedGroups, ASendLeavesItsTensor) {
  const Tensor sent = tensor(ramp(7), 1);
  send(sent);
  EXPECT_EQ(values(sent), ramp(7));
  EXPECT_EQ(outgoing->traffic(0).sent_bytes, bytes(7));
}

TEST_P(EmulatedGroups, AGroupOfOneReducesNothing) {
  const auto alone = backend->group("tp", {4});
  const Tensor sum = tensor(ramp(4), 1);
  alone->all_reduce(Reduce::sum, part(sum, sum));
  backend->device(4).synchronize();
  EXPECT_EQ(alone->traffic(0).calls, 0);
}

// Every call takes longer than a time of zero.
TEST_P(EmulatedGroups, ACallThatTakesLongerThanItsLinksSaysSo) {
  auto& emulated = dynamic_cast<EmulatedGroup&>(*outgoing);
  for (int i = 0; i < 3; ++i) send(tensor(ramp(1'000'000), 1));
  backend->device(4).synchronize();
  const EmulatedUse use = emulated.take_use();
  EXPECT_EQ(use.calls, 3);
  EXPECT_GT(use.latest_s, 0);
  EXPECT_LT(use.latest_s, use.late_s);
  EXPECT_LE(use.late_s, 3 * use.latest_s);
  EXPECT_LT(use.late_s, 60);
  EXPECT_EQ(emulated.take_use().calls, 0) << "since it was last asked";
}

TEST_P(EmulatedGroups, WhatDoesNotFitIsRefused) {
  const Tensor one = tensor(ramp(4), 1), two = tensor(ramp(4), 2);
  EXPECT_THROW(group->all_gather(part(one, two)), std::logic_error);
  EXPECT_THROW(group->reduce_scatter(part(two, one)), std::logic_error);
  EXPECT_THROW(outgoing->transfer(part({}, one)), std::logic_error);
  EXPECT_THROW(incoming->transfer(part(one, {})), std::logic_error);
  EXPECT_THROW(GetParam().make({.world_size = 2}, {.rank = 2, .times = {}}), std::logic_error);
}

}  // namespace stp::testing_support
