// Every kernel checks its tensors at the call (lib/stp/device/kernel_arguments.h), and names itself. What the
// rules are is tested with the CPU's (refused_kernels_test.cc).
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

TEST_P(KernelCases, WhatDoesNotFitIsRefused) {
  Device& device = machine_->device();
  const auto stream = device.make_stream("compute", StreamPriority::compute);
  const auto tensor = [&](int64_t rows, int64_t columns, DType type) {
    return device.allocate(*stream, MemoryKind::working, type, rows, columns);
  };
  const DType type = GetParam();
  // Of these no two fit each other, and attention's are of another shape.
  const Tensor x = tensor(3, 6, type), y = tensor(5, 7, type), z = tensor(2, 9, statistics_type(type)),
               index = tensor(4, 1, DType::i32);
  const AttentionShape shape{.batch = 1, .seq = 2, .q_heads = 2, .kv_heads = 1, .head_dim = 2};
  const AttentionBlock block{.first_query = 0, .keys = 1};
  const auto expect = [&](const std::string& reason, const auto&... unfit) {
    (expect_refused(machine_->kernels(Attention::best), *stream, unfit, reason), ...);
  };
  expect("i32", kernel::Fill{index, 1}, kernel::CheckFinite{index, "it"});
  expect(", not ", kernel::Copy{x, y}, kernel::CopyColumns{x, 0, y, 0, 1}, kernel::Scale{1, x, y},
         kernel::AddRows{x, 0, y}, kernel::Gemm{false, false, 1, x, y, 0, z},
         kernel::RmsNormForward{x, y, 0, y, z}, kernel::RmsNormBackward{x, y, x, z, 1, x, x, z},
         kernel::LayerNormForward{x, y, {}, 0, y, z}, kernel::LayerNormBackward{x, y, x, z, 1, x, x, z, z},
         kernel::AddBias{1, x, y}, kernel::ActivationForward{kernel::Pointwise::gelu, x, y},
         kernel::ActivationBackward{kernel::Pointwise::gelu, x, x, y},
         kernel::BiasRopeForward{shape, 1e4, x, y}, kernel::RopeBackward{shape, 1e4, x},
         kernel::AddColumnSums{x, z}, kernel::AttentionForward{shape, x, y, z},
         kernel::AttentionBackward{shape, x, y, z, y, x},
         kernel::AttentionMergeForward{shape, block, x, y, y, z},
         kernel::AttentionMergeBackward{shape, block, x, y, y, z, y, x, y}, kernel::SwigluForward{x, y},
         kernel::SwigluBackward{x, y, x}, kernel::EmbeddingForward{index, x, 0, y},
         kernel::EmbeddingBackward{index, x, 0, z}, kernel::ExponentialSums{x, index, 0, z, z, z},
         kernel::RescaleRows{z, z, z, 1, x, 6}, kernel::CrossEntropy{z, z, index, 0, 1, x, z},
         kernel::AddSumOfSquares{1, x, z}, kernel::AdamW{{}, 1, {}, z, z, z, z, y});
  device.synchronize();
  EXPECT_FALSE(machine_->guard().failed());
}

// What fits, but there are no such kernels for.
TEST_P(KernelCases, WhatThereAreNoKernelsForIsRefused) {
  Device& device = machine_->device();
  const auto stream = device.make_stream("compute", StreamPriority::compute);
  const auto tensor = [&](int64_t rows, int64_t columns, DType type) {
    return device.allocate(*stream, MemoryKind::working, type, rows, columns);
  };
  const Tensor x = tensor(4, 4, DType::f64), y = tensor(4, 4, DType::f64), column = tensor(4, 1, DType::f64);
  const AttentionShape long_heads{.batch = 1, .seq = 1, .q_heads = 1, .kv_heads = 1, .head_dim = 258};
  const Tensor row = tensor(1, 3 * 258, GetParam()), head = tensor(1, 258, GetParam()),
               one = tensor(1, 1, statistics_type(GetParam()));
  const auto expect = [&](const auto& lacking, const std::string& reason) {
    expect_refused(machine_->kernels(Attention::best), *stream, lacking, reason);
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
