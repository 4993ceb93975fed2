// One rank alone: that none of its calls takes less than its time, and emulated_groups.h.
#include "stp/cpu/cpu_replay.h"

#include <gtest/gtest.h>

#include "stp/cpu/cpu_backend.h"
#include "support/emulated_groups.h"

namespace stp::cpu {
namespace {

using namespace testing_support;

const ReplayBackend kOnCpu{make_replay_backend, DType::f64};
INSTANTIATE_TEST_SUITE_P(Cpu, EmulatedGroups, testing::Values(kOnCpu));

class EmulatedCpu : public EmulatedGroups {};
INSTANTIATE_TEST_SUITE_P(, EmulatedCpu, testing::Values(kOnCpu));

// Only a too short time is an error.
TEST_P(EmulatedCpu, NoCallTakesLessThanItsTime) {
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

TEST_P(EmulatedCpu, CallsAndLinksAreCountedSinceLastAsked) {
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

TEST_P(EmulatedCpu, AFailureEndsACall) {
  start({1e6, 0}, 1e7);
  send(tensor(ramp(3), 1));
  backend->guard().fail("enough");
  EXPECT_THROW(backend->device(4).synchronize(), Cancelled);
}

TEST_P(EmulatedCpu, ACallBeyondTheDeadlineFailsAtOnceAndIsNamed) {
  start({2, 3}, 4.5);
  backend->describe_with([](int, uint32_t op) { return "F0." + std::to_string(op); });
  stream->begin(7);
  reduce(tensor(ramp(6), 2));
  EXPECT_THROW(backend->device(4).synchronize(), Cancelled);
  EXPECT_EQ(backend->guard().failure(),
            "rank 4, tp, F0.7: all-reduce (sum) of 2 x 3 f64 takes 5 s over its emulated link, more than "
            "the run's deadline of 4.5 s");
}

}  // namespace
}  // namespace stp::cpu
