// A CUDA kernel refuses at the call what it does not support, and names itself. What no kernel takes
// (lib/stp/device/kernel_arguments.h) is tested with the CPU's (refused_kernels_test.cc).
#include <gmock/gmock.h>

#include <stdexcept>

#include "kernels/kernel_cases.h"
#include "support/refusal.h"

namespace stp::kernel_cases {
namespace {

template <typename Kernel>
void expect_refused(Kernels& kernels, Stream& stream, const Kernel& kernel, const std::string& reason) {
  EXPECT_THAT(
      error_of<std::logic_error>([&] { kernels.issue(stream, kernel); }),
      testing::AllOf(testing::StartsWith(kernel.name + std::string(": ")), testing::HasSubstr(reason)));
}

TEST_P(KernelCases, WhatThereAreNoKernelsForIsRefused) {
  Device& device = machine_->device;
  const auto stream = device.make_stream("compute", StreamPriority::compute);
  const auto tensor = [&](int64_t rows, int64_t columns, DType type) {
    return device.allocate(*stream, MemoryKind::working, type, rows, columns);
  };
  const Tensor x = tensor(4, 4, DType::f64), y = tensor(4, 4, DType::f64), column = tensor(4, 1, DType::f64);
  const AttentionShape long_heads{.batch = 1, .seq = 1, .q_heads = 1, .kv_heads = 1, .head_dim = 258};
  const Tensor row = tensor(1, 3 * 258, GetParam()), head = tensor(1, 258, GetParam()),
               one = tensor(1, 1, statistics_type(GetParam()));
  const auto expect = [&](const auto& lacking, const std::string& reason) {
    expect_refused(machine_->kernels(CudaAttention::cudnn), *stream, lacking, reason);
  };
  expect(kernel::Gemm{false, false, 1, x, x, 0, y}, "f64");
  expect(kernel::Scale{1, x, y}, "f64");
  expect(kernel::RescaleRows{column, column, {}, 1, x, 4}, "f64");
  expect(kernel::AdamW{{}, 1, {}, x, x, x, y, y}, "f64");
  expect(kernel::RopeBackward{long_heads, 1e4, row}, "heads of 258");
  expect(kernel::AttentionForward{long_heads, row, head, one}, "heads of 258");
}

}  // namespace
}  // namespace stp::kernel_cases
