#include "stp/cpu/local_communicator.h"

#include "stp/cpu/cpu_backend.h"
#include "support/local_groups.h"

namespace stp::testing_support {
namespace {

INSTANTIATE_TEST_SUITE_P(Cpu, LocalGroups, testing::Values(GroupBackend{cpu::make_backend}));

TEST(LocalCommunicator, APeerThatThrowsEndsItsPartnersWait) {
  Pair pair({cpu::make_backend}, kNever);
  pair.ends[0]->all_reduce(*pair.streams[0], Reduce::sum, pair.tensor(0, 2, 3));
  cpu::cpu_stream(*pair.streams[1]).enqueue([] { throw std::runtime_error("no luck"); });
  pair.ends[1]->all_reduce(*pair.streams[1], Reduce::sum, pair.tensor(1, 2, 3));
  EXPECT_EQ(pair.failure(), "rank 1, tp: no luck");
}

}  // namespace
}  // namespace stp::testing_support
