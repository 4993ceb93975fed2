// One rank alone: the results of its calls, and that none takes less than its time.
#include "stp/cpu/cpu_replay.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <tuple>

#include "stp/cpu/cpu_backend.h"
#include "support/effort.h"

namespace stp::cpu {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class EmulatedCpu : public testing::Test {
 protected:
  EmulatedCpu() { start({}); }
  /// Rank 4 of six; its peers send so much later.
  void start(CallTime time, double deadline_s = 20, double late_s = 0) {
    const auto times = [this, time](CallKind kind, double bytes, const std::vector<int>& members) {
      asked.emplace_back(kind, bytes, members);
      return time;
    };
    stream.reset();
    backend = make_replay_backend({.world_size = 6, .deadline_s = deadline_s},
                                  {.rank = 4, .times = times, .late_s = late_s});
    stream = backend->device(4).make_stream("tp", StreamPriority::communication);
    group = backend->group("tp", {2, 4, 5});
    outgoing = backend->group("p2p", {4, 5}, GroupUse::transfers);
    incoming = backend->group("p2p", {2, 4}, GroupUse::transfers);
  }
  Tensor tensor(const std::vector<double>& values, int64_t rows) {
    Tensor made = backend->device(4).allocate(*stream, MemoryKind::working, DType::f64, rows,
                                              static_cast<int64_t>(values.size()) / rows);
    backend->device(4).upload(*stream, made, std::as_bytes(std::span(values)));
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

  std::vector<std::tuple<CallKind, double, std::vector<int>>> asked;
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Stream> stream;
  std::unique_ptr<Group> group, outgoing, incoming;
};

std::vector<double> ramp(int64_t count) {
  std::vector<double> made(count);
  for (int64_t i = 0; i < count; ++i) made[i] = static_cast<double>(i) + 0.5;
  return made;
}

TEST_F(EmulatedCpu, IsOneRankOfAWorld) {
  EXPECT_EQ(backend->world_size(), 6);
  EXPECT_THAT(backend->ranks(), ElementsAre(4));
  EXPECT_EQ(group->size(), 3);
  EXPECT_THAT(group->local(), ElementsAre(1));
}

TEST_F(EmulatedCpu, CollectivesMoveTheRanksOwnNumbers) {
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
  EXPECT_EQ(group->traffic(0).all_reduce_bytes, 8 * 300'003);
  EXPECT_EQ(group->traffic(0).all_gather_bytes, 8 * 300'003);
  EXPECT_EQ(group->traffic(0).reduce_scatter_bytes, 3 * 8 * 300'003);
  EXPECT_EQ(group->traffic(0).calls, 6);
  EXPECT_EQ(asked[0], std::tuple(CallKind::all_reduce, 24.0, std::vector<int>{2, 4, 5}));
  EXPECT_EQ(asked[1], std::tuple(CallKind::all_gather, 72.0, std::vector<int>{2, 4, 5}));
  EXPECT_EQ(asked[2], std::tuple(CallKind::reduce_scatter, 72.0, std::vector<int>{2, 4, 5}));
}

// What comes is what goes, then received numbers.
TEST_F(EmulatedCpu, AnAllToAllFillsItsOutput) {
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
    EXPECT_EQ(asked.back(),
              std::tuple(CallKind::all_to_all, received > 6 ? 72.0 : 48.0, std::vector<int>{2, 4, 5}));
  }
  EXPECT_EQ(group->traffic(0).sent_bytes, 3 * 8 * 4);
}

TEST_F(EmulatedCpu, ReceivedNumbersAreSmallAndFinite) {
  for (const DType type : {DType::f32, DType::f64, DType::bf16}) {
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

TEST_F(EmulatedCpu, ASendLeavesItsTensor) {
  const Tensor sent = tensor(ramp(7), 1);
  send(sent);
  EXPECT_EQ(values(sent), ramp(7));
  EXPECT_EQ(outgoing->traffic(0).sent_bytes, 56);
}

TEST_F(EmulatedCpu, AGroupOfOneReducesNothing) {
  const auto alone = backend->group("tp", {4});
  const Tensor sum = tensor(ramp(4), 1);
  alone->all_reduce(Reduce::sum, part(sum, sum));
  backend->device(4).synchronize();
  EXPECT_EQ(alone->traffic(0).calls, 0);
}

// Only a too short time is an error.
TEST_F(EmulatedCpu, NoCallTakesLessThanItsTime) {
  start({0.02, 0.2});
  const auto seconds = [&](auto call) {
    const EventRef before = stream->record();
    call();
    const EventRef after = stream->record();
    backend->device(4).synchronize();
    return after->seconds() - before->seconds();
  };
  const Tensor large = tensor(ramp(300'000), 3), small = tensor(ramp(1), 1);
  EXPECT_GE(seconds([&] { reduce(large); }), 0.22);
  EXPECT_GE(seconds([&] { reduce(small); }), 0.22);
  EXPECT_GE(seconds([&] { receive(large); }), 0.22);
  EXPECT_GE(seconds([&] { send(large); }), 0.22);
}

TEST_F(EmulatedCpu, CallsAndLinksAreCountedSinceLastAsked) {
  start({0.02, 0.2});
  auto& emulated = dynamic_cast<EmulatedGroup&>(*group);
  const Tensor large = tensor(ramp(300'000), 3), small = tensor(ramp(3), 3);
  reduce(large);
  reduce(small);
  const EventRef after = stream->record();
  backend->device(4).synchronize();
  const EmulatedUse use = emulated.take_use();
  EXPECT_EQ(use.calls, 2);
  EXPECT_GE(use.latest_s, 0);
  EXPECT_GE(use.late_s, use.latest_s);
  EXPECT_LE(use.late_s, 2 * use.latest_s);
  EXPECT_LE(0.44 + use.late_s, after->seconds() + 1e-6) << "no call is late by more than it took";
  const size_t piece = size_t{1} << 20;
  EXPECT_EQ(use.link_bytes, piece + piece / 3);  // with three members one share goes through the link again
  send(small);
  backend->device(4).synchronize();
  EXPECT_EQ(dynamic_cast<EmulatedGroup&>(*outgoing).take_use().link_bytes, 24U);
  EXPECT_EQ(emulated.take_use().calls, 0);
}

// Every call takes longer than a time of zero.
TEST_F(EmulatedCpu, ACallThatTakesLongerThanItsLinksSaysSo) {
  send(tensor(ramp(300'000), 1));
  backend->device(4).synchronize();
  EXPECT_GT(dynamic_cast<EmulatedGroup&>(*outgoing).take_use().late_s, 0);
}

TEST_F(EmulatedCpu, AFailureEndsACall) {
  start({1e6, 0}, 1e7);
  send(tensor(ramp(3), 1));
  backend->guard().fail("enough");
  EXPECT_THROW(backend->device(4).synchronize(), Cancelled);
}

TEST_F(EmulatedCpu, ACallBeyondTheDeadlineFailsAtOnceAndIsNamed) {
  start({2, 3}, 4.5);
  backend->describe_with([](int, uint32_t op) { return "F0." + std::to_string(op); });
  stream->begin(7);
  reduce(tensor(ramp(6), 2));
  EXPECT_THROW(backend->device(4).synchronize(), Cancelled);
  EXPECT_EQ(backend->guard().failure(),
            "rank 4, tp, F0.7: all-reduce (sum) of 2 x 3 f64 takes 5 s over its emulated link, more than "
            "the run's deadline of 4.5 s");
}

TEST_F(EmulatedCpu, ReceivesAloneTakeLonger) {
  start({1e-3, 1e-3}, 4.5, 5);
  send(tensor(ramp(6), 2));
  reduce(tensor(ramp(6), 2));
  backend->device(4).synchronize();
  receive(tensor(ramp(6), 2));
  EXPECT_THROW(backend->device(4).synchronize(), Cancelled);
  EXPECT_THAT(backend->guard().failure(),
              HasSubstr("transfer of 2 x 3 f64 takes 5.002 s over its emulated link"));
}

TEST_F(EmulatedCpu, WhatDoesNotFitIsRefused) {
  const Tensor one = tensor(ramp(4), 1), two = tensor(ramp(4), 2);
  EXPECT_THROW(group->all_gather(part(one, two)), std::logic_error);
  EXPECT_THROW(group->reduce_scatter(part(two, one)), std::logic_error);
  EXPECT_THROW(outgoing->transfer(part({}, one)), std::logic_error);
  EXPECT_THROW(incoming->transfer(part(one, {})), std::logic_error);
  EXPECT_THROW(make_replay_backend({.world_size = 2}, {.rank = 2, .times = {}}), std::logic_error);
}

}  // namespace
}  // namespace stp::cpu
