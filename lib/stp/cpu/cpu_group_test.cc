#include "stp/cpu/cpu_group.h"

#include "stp/cpu/cpu_backend.h"
#include "stp/cpu/cpu_stream.h"
#include "support/local_groups.h"

namespace stp::testing_support {
namespace {

const GroupBackend kCpu{[](const BackendOptions& options) { return cpu::make_backend(options); }};

INSTANTIATE_TEST_SUITE_P(Cpu, LocalGroups, testing::Values(kCpu));

void all_reduce(const World& world) {
  const std::vector<Part> parts{world.part(0, world.tensor(0, numbers(0, 6), 2)),
                                world.part(1, world.tensor(1, numbers(1, 6), 2))};
  world.group->all_reduce(Reduce::sum, parts);
}

TEST(CpuGroup, APeerThatThrowsEndsItsPartnersWait) {
  const World world(kCpu, 2, kNever);
  cpu::cpu_stream(world.stream(1)).enqueue([] { throw std::runtime_error("no luck"); });
  all_reduce(world);
  for (int rank = 0; rank < 2; ++rank) EXPECT_THROW(world.device(rank).synchronize(), Cancelled);
  EXPECT_EQ(world.backend->guard().failure(), "rank 1, tp: no luck");
}

TEST(CpuGroup, AMemberThatDoesNotComeEndsTheRunAndIsNamed) {
  const World world(kCpu, 2, /*deadline_s=*/1);
  // The host of rank 1 waits for ever, for no stream's work.
  cpu::CpuStream& stuck = cpu::cpu_stream(world.stream(1));
  stuck.enqueue_waiting([&stuck] {
    while (!stuck.run().guard.failed()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  });
  world.stream(0).begin(5);
  all_reduce(world);
  // Another stream of the rank that waits behind it must not be the one that is blamed.
  const auto compute = world.device(0).make_stream("compute", StreamPriority::compute);
  compute->wait(world.stream(0).record());
  EXPECT_THROW(world.device(0).synchronize(), Cancelled);
  EXPECT_THAT(world.backend->guard().failure(),
              AllOf(HasSubstr("rank 0, tp, op 5"), HasSubstr("group all"), HasSubstr("for rank 1")));
}

}  // namespace
}  // namespace stp::testing_support
