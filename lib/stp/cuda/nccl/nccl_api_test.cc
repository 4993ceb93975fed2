#include "stp/cuda/nccl/nccl_api.h"

#include <gtest/gtest.h>

#include <string>

#include "stp/base/error.h"

namespace stp::cuda {
namespace {

TEST(NcclApi, IsLoadedAndAnswers) {
  try {
    nccl();
  } catch (const InputError& error) {
    if (std::string(error.what()).find("cannot be loaded") != std::string::npos) GTEST_SKIP() << error.what();
    throw;
  }
  int version = 0;
  ASSERT_EQ(nccl().ncclGetVersion(&version), ncclSuccess);
  EXPECT_EQ(version / 10000, NCCL_MAJOR);
  EXPECT_STREQ(nccl().ncclGetErrorString(ncclSuccess), "no error");
}

}  // namespace
}  // namespace stp::cuda
