// What the CUDA backend checks before a run: it goes on with other kernels where some give other numbers.
#include "stp/cuda/examine.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "stp/cuda/cuda_group.h"
#include "stp/cuda/kernels/pause.h"
#include "stp/device/self_check.h"
#include "support/cuda_on_host.h"
#include "support/simt_clock.h"

namespace stp::cuda {
namespace {

using State = Finding::State;
using testing::AllOf;
using testing::Each;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

class Examine : public testing_support::CudaOnHost {
 protected:
  std::vector<double> attention(CudaAttention way) {
    CudaKernels kernels(device(), way);
    return attention_and_gradient(*backend_, kernels, DType::bf16,
                                  {.batch = 1, .seq = 24, .q_heads = 2, .kv_heads = 1, .head_dim = 32});
  }
  /// How many kernels attention by tensor cores launches beyond the plain ones: none where these take its
  /// place.
  std::vector<const void*> kernels_of(CudaAttention way) {
    std::vector<const void*> kernels;
    fake_cuda::watch_launches([&](const void* kernel) { kernels.push_back(kernel); });
    attention(way);
    fake_cuda::reset(1);
    return kernels;
  }
};

TEST_F(Examine, TheSelfChecksHoldOnTheStandIn) {
  for (const DType type : {DType::bf16, DType::f32})
    for (const Finding& each : self_check(*backend_, type))
      EXPECT_EQ(each.state, State::works) << each.what << each.detail;
}

TEST_F(Examine, RecordsNameTheLibraries) {
  const SharedJson facts = gpu_and_library_facts();
  const auto version = [&](const std::string& of) { return facts->at(of + "_version"); };
  const std::vector<Finding> found = examine(0);
  for (const auto& [library, field] : {std::pair("cuBLASLt", "cublas_lt"), {"NCCL", "nccl"}}) {
    const auto finding = std::ranges::find(found, library, &Finding::what);
    ASSERT_NE(finding, found.end());
    if (finding->state == State::works)
      EXPECT_THAT(finding->detail, testing::StartsWith(version(field).get<std::string>() + ", "));
    else
      EXPECT_TRUE(version(field).is_null());
  }
  EXPECT_EQ(version("cudnn").is_null(), facts->at("attention") == "own kernels");
}

// Another GPU would get a context, and might have no code where this one has.
TEST_F(Examine, TheQuestionForCodeGoesToTheGpuItself) {
  set_current_gpu(1);
  std::vector<int> asked;
  fake_cuda::watch("cudaFuncGetAttributes", [&] { STP_CUDA(cudaGetDevice(&asked.emplace_back())); });
  static_cast<void>(examine(0));
  EXPECT_THAT(asked, AllOf(Not(IsEmpty()), Each(0)));
}

// Each says how long it took; what they should take, all together, is said where they took longer.
TEST_F(Examine, TheTimeOfTheChecksIsKnown) {
  const std::vector<Finding> found = self_check(*backend_, DType::bf16);
  for (const Finding& each : found) EXPECT_GT(each.seconds, 0) << each.what;
  Findings all;
  all.append({{"a driver", State::works, "", 0.5}, {"a GEMM", State::works, "", 1.25}});
  EXPECT_FALSE(too_slow(all.all()).has_value());
  all.append({{"a copy", State::works, "", 0.375}});
  const auto slow = too_slow(all.all());
  ASSERT_TRUE(slow.has_value());
  EXPECT_EQ(slow->state, State::falls_back);
  EXPECT_EQ(slow->what + " " + slow->detail,
            "these checks took 2.1 s, over 2 s; the longest was \"a GEMM\", 1.2 s");
}

// In this order: what is not trusted stays so.
TEST_F(Examine, AttentionWithOtherNumbersIsNotUsedFromThenOn) {
  const auto real = [&](CudaAttention way) { return attention(way); };
  std::vector<Finding> found = examine_attention(real, false);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].state, State::works) << found[0].detail;
  EXPECT_NE(kernels_of(CudaAttention::tensor_cores), kernels_of(CudaAttention::plain));

  // A gradient that is wrong in one of ten elements, and one that is no number.
  const auto wrong = [&](CudaAttention way) {
    std::vector<double> values = attention(way);
    if (way == CudaAttention::cudnn) values.back() = NAN;
    if (way == CudaAttention::tensor_cores)
      for (size_t i = 0; i < values.size(); i += 10) values[i] += 1;
    return values;
  };
  found = examine_attention(wrong, true);
  ASSERT_EQ(found.size(), 2U);
  for (const Finding& each : found) {
    EXPECT_EQ(each.state, State::falls_back);
    EXPECT_THAT(each.detail, HasSubstr("gives other numbers than the plain kernels; "));
  }
  EXPECT_FALSE(is_trusted(CudaAttention::cudnn));
  EXPECT_EQ(kernels_of(CudaAttention::tensor_cores), kernels_of(CudaAttention::plain));
}

// The stand-in's clock goes on by 0.01 ms with each of a stream's steps: the kernel and the second event.
// Each byte is copied twice, as link_ctas() counts.
TEST_F(Examine, TheRateOfACtaIsMeasured) {
  EXPECT_NEAR(measured_cta_rate(device()), 2 * (2 << 20) / 2e-5, 1e8);
}

TEST_F(Examine, APauseTakesItsTime) {
  const uint64_t before = simt::clock_ns;
  device().pause(stream(), 5e-6);
  device().synchronize();
  EXPECT_GE(simt::clock_ns - before, 4999U);
}

TEST_F(Examine, TheClocksStepIsMeasured) {
  EXPECT_EQ(measured_clock_step_ns(device()), static_cast<double>(simt::clock_step_ns));
  const uint64_t before = std::exchange(simt::clock_step_ns, 5000);
  EXPECT_EQ(measured_clock_step_ns(device()), 5000);
  simt::clock_step_ns = before;
}

}  // namespace
}  // namespace stp::cuda
