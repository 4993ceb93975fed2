// Kernels refuse at the call: tensors whose shapes or types do not fit, and invalid shapes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

#include "stp/cpu/cpu_backend.h"
#include "stp/device/kernels.h"
#include "support/refusal.h"

namespace stp::cpu::refused_kernels_test {
namespace {

constexpr AttentionShape kShape{.batch = 2, .seq = 3, .q_heads = 4, .kv_heads = 2, .head_dim = 2};

class RefusedKernels : public testing::Test {
 protected:
  Tensor tensor(int64_t rows, int64_t columns, DType type = DType::f32) {
    return device_.allocate(s_, MemoryKind::working, type, rows, columns);
  }

  // The text must name the kernel and contain `reason`.
  template <typename Kernel>
  void expect_refused(const Kernel& kernel, const std::string& reason) {
    EXPECT_THAT(
        error_of<std::logic_error>([&] { k_.issue(s_, kernel); }),
        testing::AllOf(testing::StartsWith(kernel.name + std::string(": ")), testing::HasSubstr(reason)));
  }

  std::unique_ptr<Backend> backend_ = make_backend({.world_size = 1});
  Device& device_ = backend_->device(0);
  std::unique_ptr<Stream> stream_ = device_.make_stream("compute", StreamPriority::compute);
  Stream& s_ = *stream_;
  Kernels& k_ = device_.kernels();
  const Tensor none_, x_ = tensor(6, 8), y_ = tensor(6, 8), row_ = tensor(1, 8), column_ = tensor(6, 1),
                      pair_ = tensor(6, 2), one_ = tensor(1, 1), one64_ = tensor(1, 1, DType::f64),
                      wide_ = tensor(6, 16), tall_ = tensor(8, 6), double_ = tensor(6, 8, DType::f64),
                      tokens_ = tensor(6, 1, DType::i32), integers_ = tensor(6, 8, DType::i32),
                      heads_ = tensor(6, 4);
};

TEST_F(RefusedKernels, WholeTensors) {
  expect_refused(kernel::Fill{integers_, 1}, "i32");
  expect_refused(kernel::Fill{none_, 1}, "empty");
  expect_refused(kernel::Copy{x_, tall_}, "8 x 6 f32, not 6 x 8 f32");
  expect_refused(kernel::Copy{x_, double_}, "6 x 8 f64, not 6 x 8 f32");
  expect_refused(kernel::Copy{none_, none_}, "empty");
  expect_refused(kernel::CopyColumns{x_, 0, tall_, 0, 1}, "8 x 6 f32, not 6 x 6 f32");
  expect_refused(kernel::CopyColumns{x_, 1, y_, 0, 8}, "beyond");
  expect_refused(kernel::CopyColumns{x_, 0, y_, 1, 8}, "beyond");
  expect_refused(kernel::AddRows{x_, 0, tall_}, "8 x 6 f32, not 8 x 8 f32");
  expect_refused(kernel::AddRows{x_, 1, y_}, "beyond");
  expect_refused(kernel::Scale{1, x_, tall_}, "8 x 6");
  expect_refused(kernel::Scale{1, none_, none_}, "empty");
  expect_refused(kernel::CheckFinite{none_, "it"}, "empty");
  expect_refused(kernel::CheckFinite{integers_, "it"}, "i32");
  expect_refused(kernel::AddSumOfSquares{1, x_, one_}, "f32, not 1 x 1 f64");
  expect_refused(kernel::AddSumOfSquares{1, none_, one64_}, "empty");
  expect_refused(kernel::AddColumnSums{x_, column_}, "6 x 1");
}

TEST_F(RefusedKernels, Gemm) {
  const Tensor square = tensor(6, 6);
  expect_refused(kernel::Gemm{false, false, 1, x_, y_, 0, square}, "b is 6 x 8 f32, not 8 x 8 f32");
  expect_refused(kernel::Gemm{false, true, 1, x_, y_, 0, x_}, "c is 6 x 8");
  expect_refused(kernel::Gemm{false, true, 1, x_, double_, 0, square}, "f64");
  expect_refused(kernel::Gemm{false, true, 1, integers_, integers_, 0, tensor(6, 6, DType::i32)}, "i32");
  expect_refused(kernel::Gemm{false, true, 1, none_, y_, 0, square}, "a tensor is empty");
  expect_refused(kernel::Gemm{false, true, 1, x_, y_, 1, square, x_}, "what is added to is 6 x 8");
}

TEST_F(RefusedKernels, Norms) {
  for (const bool centred : {false, true}) {
    const Tensor statistics = centred ? pair_ : column_, bias = centred ? row_ : none_;
    const auto forward = [&](const Tensor& x, const Tensor& gain, const Tensor& y, const Tensor& of_rows) {
      return kernel::NormForward{centred, x, gain, bias, 0, y, of_rows};
    };
    expect_refused(forward(x_, column_, y_, statistics), "gain");
    expect_refused(forward(x_, row_, tall_, statistics), "y is");
    expect_refused(forward(x_, row_, y_, row_), "the statistics is 1 x 8");
    expect_refused(forward(none_, row_, y_, statistics), "a tensor is empty");
    const auto backward = [&](const Tensor& dy, const Tensor& residual, const Tensor& dx,
                              const Tensor& sums) {
      return kernel::NormBackward{centred, dy, x_, row_, statistics, 1, residual, dx, sums, bias};
    };
    expect_refused(backward(tall_, none_, y_, row_), "dy");
    expect_refused(backward(y_, tall_, y_, row_), "residual");
    expect_refused(backward(y_, none_, double_, row_), "dx");
    expect_refused(backward(y_, none_, y_, column_), "gradient");
  }
  expect_refused(kernel::NormForward{false, x_, row_, row_, 0, y_, column_}, "bias");
  expect_refused(kernel::NormForward{true, x_, row_, row_, 0, y_, column_}, "the statistics is 6 x 1");
  expect_refused(kernel::NormForward{true, x_, row_, column_, 0, y_, pair_}, "bias");
}

TEST_F(RefusedKernels, ActivationsAndBiases) {
  expect_refused(kernel::ActivationForward{kernel::Pointwise::gelu, x_, tall_}, "out");
  expect_refused(kernel::ActivationBackward{kernel::Pointwise::gelu, x_, y_, tall_}, "x's gradient");
  expect_refused(kernel::AddBias{1, column_, x_}, "bias");
  AttentionShape ring = kShape;
  ring.cp = 2;
  ring.causal = false;
  expect_refused(kernel::AttentionForward{ring, wide_, x_, heads_}, "without mask");
}

TEST_F(RefusedKernels, Attention) {
  const Tensor qkv = wide_, bias = tensor(1, 16), lse = heads_;
  AttentionShape uneven = kShape, odd = kShape, none = kShape;
  uneven.kv_heads = 3;
  odd.head_dim = 3;
  none.kv_heads = 0;
  expect_refused(kernel::BiasRopeForward{kShape, 1e4, row_, qkv}, "bias");
  expect_refused(kernel::BiasRopeForward{kShape, 1e4, bias, x_}, "qkv");
  expect_refused(kernel::BiasRopeForward{odd, 1e4, bias, qkv}, "of 3, rotated");
  expect_refused(kernel::RopeBackward{kShape, 1e4, x_}, "6 x 8 f32, not 6 x 16");
  expect_refused(kernel::RopeBackward{odd, 1e4, qkv}, "of 3, rotated");
  expect_refused(kernel::AttentionForward{uneven, qkv, x_, lse}, "4 query heads and 3");
  expect_refused(kernel::AttentionForward{none, qkv, x_, lse}, "4 query heads and 0");
  expect_refused(kernel::AttentionForward{kShape, x_, x_, lse}, "qkv");
  expect_refused(kernel::AttentionForward{kShape, qkv, lse, lse}, "out is");
  expect_refused(kernel::AttentionForward{kShape, qkv, x_, x_}, "log-sum-exp");
  const auto backward = [&](const AttentionShape& shape, const Tensor& dy, const Tensor& gradient) {
    return kernel::AttentionBackward{shape, qkv, x_, lse, dy, gradient};
  };
  expect_refused(backward(uneven, y_, wide_), "4 query heads and 3");
  expect_refused(backward(kShape, tall_, wide_), "out's gradient");
  expect_refused(backward(kShape, y_, x_), "qkv's gradient");
}

TEST_F(RefusedKernels, AttentionToOtherKeys) {
  constexpr AttentionBlock kAll{.first_query = 0, .keys = 3};
  const auto forward = [&](const AttentionBlock& block, const Tensor& qkv, const Tensor& kv) {
    return kernel::AttentionForward{kShape, qkv, x_, heads_, block, kv};
  };
  expect_refused(forward(kAll, x_, x_), "qkv");
  expect_refused(forward(kAll, wide_, wide_), "keys and values");
  expect_refused(forward({.first_query = 3, .keys = 3}, wide_, x_), "no queries from 3 on");
  expect_refused(forward({.first_query = 0, .keys = 4}, wide_, x_), "4 keys");
  const auto backward = [&](const Tensor& qkv, const Tensor& kv, const Tensor& dy, const Tensor& gradient,
                            const Tensor& kv_gradient) {
    return kernel::AttentionBackward{kShape, qkv, x_, heads_, dy, gradient, kAll, kv, kv_gradient};
  };
  expect_refused(backward(x_, x_, y_, wide_, x_), "qkv");
  expect_refused(backward(wide_, wide_, y_, wide_, x_), "keys and values");
  expect_refused(backward(wide_, x_, tall_, wide_, x_), "out's gradient");
  expect_refused(backward(wide_, x_, y_, x_, x_), "qkv's gradient");
  expect_refused(backward(wide_, x_, y_, wide_, wide_), "kv's gradient");
  expect_refused(backward(wide_, none_, y_, wide_, x_), "a tensor is empty");
}

TEST_F(RefusedKernels, SwiGluAndEmbedding) {
  expect_refused(kernel::SwigluForward{x_, y_}, "6 x 8 f32, not 6 x 16");
  expect_refused(kernel::SwigluBackward{y_, x_, wide_}, "gate and up");
  expect_refused(kernel::SwigluBackward{wide_, x_, y_}, "gradient");
  expect_refused(kernel::EmbeddingForward{column_, row_, 0, x_}, "f32, not 6 x 1 i32");
  expect_refused(kernel::EmbeddingForward{tokens_, tall_, 0, x_}, "out");
  expect_refused(kernel::EmbeddingBackward{column_, x_, 0, y_}, "tokens");
  expect_refused(kernel::EmbeddingBackward{tokens_, x_, 0, tall_}, "gradient");
}

TEST_F(RefusedKernels, CrossEntropy) {
  const Tensor nothing = tensor(6, 0);
  expect_refused(kernel::ExponentialSums{nothing, tokens_, 0, column_, column_, pair_}, "no columns");
  expect_refused(kernel::ExponentialSums{x_, tokens_, 0, row_, column_, pair_}, "maximum");
  expect_refused(kernel::ExponentialSums{x_, tokens_, 0, column_, row_, pair_}, "own");
  expect_refused(kernel::ExponentialSums{x_, tokens_, 0, column_, column_, column_}, "sums");
  expect_refused(kernel::ExponentialSums{x_, column_, 0, column_, column_, pair_}, "targets");
  expect_refused(kernel::CrossEntropy{column_, pair_, tokens_, 0, 1, x_, one64_}, "loss");
  expect_refused(kernel::CrossEntropy{pair_, pair_, tokens_, 0, 1, x_, one_}, "maximum");
  expect_refused(kernel::CrossEntropy{column_, {}, {}, 0, 1, x_, one_}, "sums");
  expect_refused(kernel::RescaleRows{row_, column_, pair_, 1, x_, 1}, "own");
  expect_refused(kernel::RescaleRows{column_, column_, column_, 1, x_, 1}, "sums");
  for (const int64_t columns : {0, 9})
    expect_refused(kernel::RescaleRows{column_, column_, {}, 1, x_, columns},
                   "no columns, or columns beyond");
}

TEST_F(RefusedKernels, AdamW) {
  const auto step = [&](const Tensor& total, const Tensor& first, const Tensor& master,
                        const Tensor& weight) {
    return kernel::AdamW{{}, 1, total, x_, first, y_, master, weight};
  };
  expect_refused(step(one_, y_, y_, y_), "total");
  expect_refused(step(none_, tall_, y_, y_), "first moment");
  expect_refused(step(none_, y_, double_, double_), "master is");
  expect_refused(step(none_, y_, y_, x_), "not 6 x 8 bf16");
}

// Mixed types that kernel_arguments.h does not allow.
TEST_F(RefusedKernels, MixedTypes) {
  const Tensor narrow = tensor(6, 8, DType::bf16), narrow_row = tensor(1, 8, DType::bf16),
               square = tensor(6, 6, DType::bf16), square64 = tensor(6, 6, DType::f64);
  const auto gemm = [&](const Tensor& a, const Tensor& b, const Tensor& c) {
    return kernel::Gemm{false, true, 1, a, b, 0, c};
  };
  expect_refused(gemm(narrow, x_, square), "b is 6 x 8 f32, not 6 x 8 bf16");
  expect_refused(gemm(x_, y_, square), "c is 6 x 6 bf16, not 6 x 6 f32");
  expect_refused(gemm(narrow, narrow, square64), "c is 6 x 6 f64, not 6 x 6 f32");
  expect_refused(kernel::NormForward{false, narrow, row_, none_, 0, narrow, column_},
                 "gain is 1 x 8 f32, not 1 x 8 bf16");
  expect_refused(
      kernel::NormBackward{false, narrow, narrow, narrow_row, column_, 1, none_, narrow, narrow_row, none_},
      "gradient is 1 x 8 bf16, not 1 x 8 f32");
  expect_refused(kernel::AddColumnSums{narrow, narrow_row}, "bf16, not 1 x 8 f32");
  expect_refused(kernel::EmbeddingBackward{tokens_, narrow, 0, narrow}, "bf16, not 6 x 8 f32");
  const Tensor narrow_column = tensor(6, 1, DType::bf16);
  expect_refused(kernel::ExponentialSums{narrow, tokens_, 0, narrow_column, column_, pair_},
                 "bf16, not 6 x 1 f32");
  expect_refused(kernel::AdamW{{}, 1, none_, narrow, narrow, narrow, narrow, narrow}, "bf16, not 6 x 8 f32");
  expect_refused(kernel::AdamW{{}, 1, none_, double_, double_, double_, double_, narrow},
                 "f64, not 6 x 8 f32");
}

// A refused call has no later effect.
TEST_F(RefusedKernels, TheStreamGoesOn) {
  expect_refused(kernel::Copy{x_, tall_}, "8 x 6");
  k_.issue(s_, kernel::Fill{x_, 1});
  device_.synchronize();
  EXPECT_FALSE(backend_->guard().failed());
}

}  // namespace
}  // namespace stp::cpu::refused_kernels_test
