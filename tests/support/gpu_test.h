// A test that needs a GPU, or the fake runtime in its place (cuda_on_host.h).
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "stp/cuda/cuda_backend.h"

namespace stp::testing_support {

class GpuTest : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string lack = cuda::lack_of_gpu(); !lack.empty()) GTEST_SKIP() << lack;
  }
};

}  // namespace stp::testing_support
