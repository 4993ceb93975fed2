#include "stp/cuda/cuda_group.h"

#include "stp/cuda/cuda_backend.h"
#include "support/local_groups.h"
#ifdef STP_KERNELS_ON_HOST
#include "support/effort.h"
#include "support/fake_cuda.h"
#endif

namespace stp::testing_support {
namespace {

const GroupBackend kCuda{[](const BackendOptions& options) { return cuda::make_backend(options); },
                         [] { return cuda::lack_of_gpu(); }};

INSTANTIATE_TEST_SUITE_P(Gpu, LocalGroups, testing::Values(kCuda));

TEST(CudaGroup, OfMoreRanksThanACallCanHaveIsRefused) {
  EXPECT_NE(cuda::make_local_group("all", std::vector<int>(64)), nullptr);
  EXPECT_THROW(cuda::make_local_group("all", std::vector<int>(65)), std::logic_error);
}

#ifdef STP_KERNELS_ON_HOST
// Whatever the order in which the device's streams go on.
TEST(CudaGroup, AnyOrderOfStreamsGivesTheSame) {
  for (uint32_t seed = 1; seed <= 40; seed += kStride) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    fake_cuda::reset(seed);
    const World world(kCuda, 4, kNever);
    GridOfGroups grid(world);
    for (int round = 0; round < 8; ++round) grid.round(37);
    grid.expect_sums();
    EXPECT_EQ(world.backend->guard().failure(), "");
    for (const int rank : world.ranks) EXPECT_EQ(world.device(rank).memory().held(), 0U);
  }
}
#endif

}  // namespace
}  // namespace stp::testing_support
