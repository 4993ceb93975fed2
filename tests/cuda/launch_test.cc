// Launches as CUDA's runtime takes them, on one that has no device and refuses what a device would.
#include "stp/cuda/cuda_launch.h"

#include <gtest/gtest.h>

#include "stp/cuda/cuda_check.h"
#include "support/fake_cuda.h"

namespace stp::cuda {
namespace {

constexpr size_t kUnasked = size_t{48} << 10, kMost = size_t{227} << 10;

// Kernels that nobody knows yet, one for each test: what they were given stays with them.
template <int kNumber>
void kernel(int, const float*) {}

template <int kNumber>
const void* address() {
  return reinterpret_cast<const void*>(&kernel<kNumber>);
}

class Launch : public testing::Test {
 protected:
  Launch() { fake_cuda::reset(1); }
  ~Launch() override { STP_CUDA(cudaSetDevice(0)); }
  template <int kNumber>
  void launch(size_t shared) {
    start(kernel<kNumber>, {2, 64, shared}, nullptr, 1, nullptr);
  }
};

// As RMSNorm's backward of 12288 columns, whose sums of a row take all 48 KiB.
TEST_F(Launch, ABlockIsGivenWhatItsKernelIsLaunchedWith) {
  fake_cuda::declare_shared(address<1>(), 128);
  for (const size_t shared :
       {size_t{0}, kUnasked - 128, kUnasked - 124, kUnasked, kUnasked + 4, kMost - 128, size_t{64}})
    EXPECT_NO_THROW(launch<1>(shared)) << shared;
  EXPECT_THROW(launch<1>(kMost - 124), CudaError);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess) << "later checks find it";
}

TEST_F(Launch, LessThanWasGivenAlreadyIsNotAskedForAgain) {
  launch<2>(kUnasked);
  EXPECT_EQ(fake_cuda::calls("cudaFuncSetAttribute"), 0U);
  launch<2>(kUnasked + 1000);
  launch<2>(kUnasked + 1000);
  launch<2>(kUnasked + 8);
  EXPECT_EQ(fake_cuda::calls("cudaFuncSetAttribute"), 1U);
  launch<2>(kUnasked + 1008);
  EXPECT_EQ(fake_cuda::calls("cudaFuncSetAttribute"), 2U);
}

TEST_F(Launch, EachDeviceIsAskedForItself) {
  launch<3>(kMost);
  STP_CUDA(cudaSetDevice(1));
  EXPECT_NO_THROW(launch<3>(kMost));
  EXPECT_EQ(fake_cuda::calls("cudaFuncSetAttribute"), 2U);
}

TEST_F(Launch, TheLimitIsWhatTheKernelsOwnLeaves) {
  fake_cuda::declare_shared(address<4>(), 1000);
  EXPECT_EQ(shared_limit(kernel<4>), kMost - 1000);
  EXPECT_NO_THROW(launch<4>(shared_limit(kernel<4>)));
  fake_cuda::declare_shared(address<5>(), kMost + 4);
  EXPECT_EQ(shared_limit(kernel<5>), 0U);
}

TEST_F(Launch, OccupancyIsAskedOnceAndWithTheSharedMemoryGiven) {
  EXPECT_EQ(resident_blocks(kernel<6>, 64, kMost), 2);
  EXPECT_EQ(fake_cuda::calls("cudaFuncSetAttribute"), 1U);
  EXPECT_EQ(resident_blocks(kernel<6>, 64, kMost), 2);
  EXPECT_EQ(fake_cuda::calls("cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags"), 1U);
}

}  // namespace
}  // namespace stp::cuda
