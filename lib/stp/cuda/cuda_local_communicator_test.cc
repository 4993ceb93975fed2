#include "stp/cuda/cuda_local_communicator.h"

#include "stp/cuda/cuda_backend.h"
#include "support/local_groups.h"

namespace stp::testing_support {
namespace {

INSTANTIATE_TEST_SUITE_P(Gpu, LocalGroups,
                         testing::Values(GroupBackend{
                             [](const BackendOptions& options) { return cuda::make_backend(options); },
                             [] { return cuda::lack_of_gpu(); }}));

}  // namespace
}  // namespace stp::testing_support
