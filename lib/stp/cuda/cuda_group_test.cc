#include "stp/cuda/cuda_group.h"

#include "stp/cuda/cuda_backend.h"
#include "support/local_groups.h"

namespace stp::testing_support {
namespace {

INSTANTIATE_TEST_SUITE_P(Gpu, LocalGroups,
                         testing::Values(GroupBackend{
                             [](const BackendOptions& options) { return cuda::make_backend(options); },
                             [] { return cuda::lack_of_gpu(); }}));

TEST(CudaGroup, OfMoreRanksThanACallCanHaveIsRefused) {
  EXPECT_NE(cuda::make_local_group("all", std::vector<int>(64)), nullptr);
  EXPECT_THROW(cuda::make_local_group("all", std::vector<int>(65)), std::logic_error);
}

}  // namespace
}  // namespace stp::testing_support
