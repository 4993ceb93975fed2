// Launches as CUDA's runtime takes them, on one that has no device and refuses what a device would.
#include "stp/cuda/kernels/launch.h"

#include <gtest/gtest.h>

#include "support/cuda_on_host.h"
#include "support/simt.h"

namespace stp::cuda {
namespace {

constexpr size_t kUnasked = size_t{48} << 10, kMost = size_t{227} << 10;

// Kernels that were not launched before, one for each test: a launch leaves its attributes behind.
template <int kNumber>
void kernel(int, const float*) {}

template <int kNumber>
const void* address_of_kernel() {
  return reinterpret_cast<const void*>(&kernel<kNumber>);
}

class Launch : public testing_support::CudaOnHost {
 protected:
  template <int kNumber>
  void launch(size_t shared) {
    cuda::start(stream(), kernel<kNumber>, {2, 64, shared}, 1, nullptr);
    device().synchronize();
  }
};

// As RMSNorm's backward of 12288 columns, whose sums of a row take all 48 KiB.
TEST_F(Launch, ABlockIsGivenWhatItsKernelIsLaunchedWith) {
  fake_cuda::declare_shared(address_of_kernel<1>(), 128);
  for (const size_t shared :
       {size_t{0}, kUnasked - 128, kUnasked - 124, kUnasked, kUnasked + 4, kMost - 128, size_t{64}})
    EXPECT_NO_THROW(launch<1>(shared)) << shared;
  EXPECT_THROW(launch<1>(kMost - 124), CudaError);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess) << "later checks find it";
}

TEST_F(Launch, LessThanWasGivenAlreadyIsNotAskedForAgain) {
  fake_cuda::declare_shared(address_of_kernel<2>(), 0);
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
  for (const int gpu : {0, 1, 0}) {
    set_current_gpu(gpu);
    allow_shared(address_of_kernel<3>(), kUnasked + 1000);
  }
  EXPECT_EQ(fake_cuda::calls("cudaFuncSetAttribute"), 2U);
}

TEST_F(Launch, TheLimitIsWhatTheKernelsOwnLeaves) {
  fake_cuda::declare_shared(address_of_kernel<4>(), 1000);
  EXPECT_EQ(shared_limit(address_of_kernel<4>()), kMost - 1000);
  EXPECT_NO_THROW(launch<4>(shared_limit(address_of_kernel<4>())));
  fake_cuda::declare_shared(address_of_kernel<5>(), kMost + 4);
  EXPECT_EQ(shared_limit(address_of_kernel<5>()), 0U);
}

TEST_F(Launch, ARefusedQuestionIsAskedAgain) {
  fake_cuda::declare_shared(address_of_kernel<7>(), 0);
  fake_cuda::fail_next("cudaFuncGetAttributes", cudaErrorInvalidValue);
  EXPECT_THROW(shared_limit(address_of_kernel<7>()), CudaError);
  EXPECT_EQ(shared_limit(address_of_kernel<7>()), kMost);
}

TEST_F(Launch, OccupancyIsAskedOnceAndWithTheSharedMemoryGiven) {
  fake_cuda::declare_shared(address_of_kernel<6>(), 0);
  EXPECT_EQ(resident_blocks(address_of_kernel<6>(), 64, kMost), 3 * 2);  // multiprocessors, blocks on each
  EXPECT_EQ(fake_cuda::calls("cudaFuncSetAttribute"), 1U);
  EXPECT_EQ(resident_blocks(address_of_kernel<6>(), 64, kMost), 3 * 2);
  EXPECT_EQ(fake_cuda::calls("cudaOccupancyMaxActiveBlocksPerMultiprocessor"), 1U);
}

}  // namespace
}  // namespace stp::cuda
