// Kernels refuse at the call: tensors whose shapes or types do not fit, and invalid shapes.
#include <gtest/gtest.h>

#include <functional>
#include <stdexcept>
#include <string>

#include "stp/cpu/cpu_backend.h"
#include "stp/device/kernels.h"

namespace stp::cpu::refused_kernels_test {
namespace {

constexpr AttentionShape kShape{.batch = 2, .seq = 3, .q_heads = 4, .kv_heads = 2, .head_dim = 2};

class RefusedKernels : public testing::Test {
 protected:
  Tensor tensor(int64_t rows, int64_t columns, DType type = DType::f32) {
    return device_.allocate(s_, MemoryKind::working, type, rows, columns);
  }

  // The call must throw; its text must name the kernel and contain `reason`.
  static void expect_refused(const std::string& kernel, const std::string& reason,
                             const std::function<void()>& call) {
    try {
      call();
      ADD_FAILURE() << kernel << " accepted: " << reason;
    } catch (const std::logic_error& error) {
      const std::string text = error.what();
      EXPECT_EQ(text.substr(0, kernel.size() + 2), kernel + ": ");
      EXPECT_NE(text.find(reason), std::string::npos) << text;
    }
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
  expect_refused("fill", "i32", [&] { k_.fill(s_, integers_, 1); });
  expect_refused("fill", "empty", [&] { k_.fill(s_, none_, 1); });
  expect_refused("copy", "8 x 6 f32, not 6 x 8 f32", [&] { k_.copy(s_, x_, tall_); });
  expect_refused("copy", "6 x 8 f64, not 6 x 8 f32", [&] { k_.copy(s_, x_, double_); });
  expect_refused("copy", "empty", [&] { k_.copy(s_, none_, none_); });
  expect_refused("scale", "8 x 6", [&] { k_.scale(s_, 1, x_, tall_); });
  expect_refused("scale", "empty", [&] { k_.scale(s_, 1, none_, none_); });
  expect_refused("check_finite", "empty", [&] { k_.check_finite(s_, none_, "it"); });
  expect_refused("check_finite", "i32", [&] { k_.check_finite(s_, integers_, "it"); });
  expect_refused("add_sum_of_squares", "f32, not 1 x 1 f64", [&] { k_.add_sum_of_squares(s_, 1, x_, one_); });
  expect_refused("add_sum_of_squares", "empty", [&] { k_.add_sum_of_squares(s_, 1, none_, one64_); });
  expect_refused("add_column_sums", "6 x 1", [&] { k_.add_column_sums(s_, x_, column_); });
}

TEST_F(RefusedKernels, Gemm) {
  const Tensor square = tensor(6, 6);
  expect_refused("gemm", "b is 6 x 8 f32, not 8 x 8 f32",
                 [&] { k_.gemm(s_, false, false, 1, x_, y_, 0, square); });
  expect_refused("gemm", "c is 6 x 8", [&] { k_.gemm(s_, false, true, 1, x_, y_, 0, x_); });
  expect_refused("gemm", "f64", [&] { k_.gemm(s_, false, true, 1, x_, double_, 0, square); });
  expect_refused("gemm", "i32",
                 [&] { k_.gemm(s_, false, true, 1, integers_, integers_, 0, tensor(6, 6, DType::i32)); });
  expect_refused("gemm", "a tensor is empty", [&] { k_.gemm(s_, false, true, 1, none_, y_, 0, square); });
}

TEST_F(RefusedKernels, RmsNorm) {
  expect_refused("rms_norm_forward", "gain", [&] { k_.rms_norm_forward(s_, x_, column_, 0, y_, column_); });
  expect_refused("rms_norm_forward", "y is", [&] { k_.rms_norm_forward(s_, x_, row_, 0, tall_, column_); });
  expect_refused("rms_norm_forward", "rstd", [&] { k_.rms_norm_forward(s_, x_, row_, 0, y_, row_); });
  expect_refused("rms_norm_forward", "a tensor is empty",
                 [&] { k_.rms_norm_forward(s_, none_, row_, 0, y_, column_); });
  const auto backward = [&](const Tensor& dy, const Tensor& residual, const Tensor& dx, const Tensor& sums) {
    k_.rms_norm_backward(s_, dy, x_, row_, column_, 1, residual, dx, sums);
  };
  expect_refused("rms_norm_backward", "dy", [&] { backward(tall_, none_, y_, row_); });
  expect_refused("rms_norm_backward", "residual", [&] { backward(y_, tall_, y_, row_); });
  expect_refused("rms_norm_backward", "dx", [&] { backward(y_, none_, double_, row_); });
  expect_refused("rms_norm_backward", "gradient", [&] { backward(y_, none_, y_, column_); });
}

TEST_F(RefusedKernels, OfVisionEncoders) {
  expect_refused("layer_norm_forward", "the statistics is 6 x 1",
                 [&] { k_.layer_norm_forward(s_, x_, row_, row_, 0, y_, column_); });
  expect_refused("layer_norm_forward", "bias",
                 [&] { k_.layer_norm_forward(s_, x_, row_, column_, 0, y_, pair_); });
  const auto backward = [&](const Tensor& residual, const Tensor& dx, const Tensor& sums) {
    k_.layer_norm_backward(s_, y_, x_, row_, pair_, 1, residual, dx, sums, row_);
  };
  expect_refused("layer_norm_backward", "residual", [&] { backward(tall_, y_, row_); });
  expect_refused("layer_norm_backward", "dx", [&] { backward(none_, double_, row_); });
  expect_refused("layer_norm_backward", "gradient", [&] { backward(none_, y_, column_); });
  expect_refused("gelu_forward", "out", [&] { k_.gelu_forward(s_, x_, tall_); });
  expect_refused("gelu_backward", "x's gradient", [&] { k_.gelu_backward(s_, x_, y_, tall_); });
  expect_refused("add_bias", "bias", [&] { k_.add_bias(s_, 1, column_, x_); });
  AttentionShape ring = kShape;
  ring.cp = 2;
  ring.causal = false;
  expect_refused("attention_forward", "without mask",
                 [&] { k_.attention_forward(s_, ring, wide_, x_, heads_); });
}

TEST_F(RefusedKernels, Attention) {
  const Tensor qkv = wide_, bias = tensor(1, 16), lse = heads_;
  AttentionShape uneven = kShape, odd = kShape, none = kShape;
  uneven.kv_heads = 3;
  odd.head_dim = 3;
  none.kv_heads = 0;
  expect_refused("bias_rope_forward", "bias", [&] { k_.bias_rope_forward(s_, kShape, 1e4, row_, qkv); });
  expect_refused("bias_rope_forward", "of 3, rotated",
                 [&] { k_.bias_rope_forward(s_, odd, 1e4, bias, qkv); });
  expect_refused("rope_backward", "6 x 8 f32, not 6 x 16", [&] { k_.rope_backward(s_, kShape, 1e4, x_); });
  expect_refused("rope_backward", "of 3, rotated", [&] { k_.rope_backward(s_, odd, 1e4, qkv); });
  expect_refused("attention_forward", "4 query heads and 3",
                 [&] { k_.attention_forward(s_, uneven, qkv, x_, lse); });
  expect_refused("attention_forward", "4 query heads and 0",
                 [&] { k_.attention_forward(s_, none, qkv, x_, lse); });
  expect_refused("attention_forward", "qkv", [&] { k_.attention_forward(s_, kShape, x_, x_, lse); });
  expect_refused("attention_forward", "out is", [&] { k_.attention_forward(s_, kShape, qkv, lse, lse); });
  expect_refused("attention_forward", "log-sum-exp", [&] { k_.attention_forward(s_, kShape, qkv, x_, x_); });
  const auto backward = [&](const AttentionShape& shape, const Tensor& dy, const Tensor& gradient) {
    k_.attention_backward(s_, shape, qkv, x_, lse, dy, gradient);
  };
  expect_refused("attention_backward", "4 query heads and 3", [&] { backward(uneven, y_, wide_); });
  expect_refused("attention_backward", "out's gradient", [&] { backward(kShape, tall_, wide_); });
  expect_refused("attention_backward", "qkv's gradient", [&] { backward(kShape, y_, x_); });
}

TEST_F(RefusedKernels, SwiGluAndEmbedding) {
  expect_refused("swiglu_forward", "6 x 8 f32, not 6 x 16", [&] { k_.swiglu_forward(s_, x_, y_); });
  expect_refused("swiglu_backward", "gradient", [&] { k_.swiglu_backward(s_, wide_, x_, y_); });
  expect_refused("embedding_forward", "f32, not 6 x 1 i32",
                 [&] { k_.embedding_forward(s_, column_, row_, 0, x_); });
  expect_refused("embedding_forward", "out", [&] { k_.embedding_forward(s_, tokens_, tall_, 0, x_); });
  expect_refused("embedding_backward", "gradient", [&] { k_.embedding_backward(s_, tokens_, x_, 0, tall_); });
}

TEST_F(RefusedKernels, CrossEntropy) {
  const Tensor nothing = tensor(6, 0);
  expect_refused("row_maximum", "no columns", [&] { k_.row_maximum(s_, nothing, column_); });
  expect_refused("row_maximum", "maximum", [&] { k_.row_maximum(s_, x_, row_); });
  expect_refused("exponential_sums", "sums",
                 [&] { k_.exponential_sums(s_, x_, column_, tokens_, 0, column_); });
  expect_refused("exponential_sums", "targets",
                 [&] { k_.exponential_sums(s_, x_, column_, column_, 0, pair_); });
  expect_refused("cross_entropy", "loss",
                 [&] { k_.cross_entropy(s_, column_, pair_, tokens_, 0, 1, x_, one64_); });
  expect_refused("cross_entropy", "maximum",
                 [&] { k_.cross_entropy(s_, pair_, pair_, tokens_, 0, 1, x_, one_); });
}

TEST_F(RefusedKernels, AdamW) {
  const auto step = [&](const Tensor& total, const Tensor& first, const Tensor& master,
                        const Tensor& weight) { k_.adamw(s_, {}, 1, total, x_, first, y_, master, weight); };
  expect_refused("adamw", "total", [&] { step(one_, y_, y_, y_); });
  expect_refused("adamw", "first moment", [&] { step(none_, tall_, y_, y_); });
  expect_refused("adamw", "master is", [&] { step(none_, y_, double_, double_); });
  expect_refused("adamw", "not 6 x 8 bf16", [&] { step(none_, y_, y_, x_); });
}

// Mixed types that kernels.h does not allow.
TEST_F(RefusedKernels, MixedTypes) {
  const Tensor narrow = tensor(6, 8, DType::bf16), narrow_row = tensor(1, 8, DType::bf16),
               square = tensor(6, 6, DType::bf16), square64 = tensor(6, 6, DType::f64);
  const auto gemm = [&](const Tensor& a, const Tensor& b, const Tensor& c) {
    k_.gemm(s_, false, true, 1, a, b, 0, c);
  };
  expect_refused("gemm", "b is 6 x 8 f32, not 6 x 8 bf16", [&] { gemm(narrow, x_, square); });
  expect_refused("gemm", "c is 6 x 6 bf16, not 6 x 6 f32", [&] { gemm(x_, y_, square); });
  expect_refused("gemm", "c is 6 x 6 f64, not 6 x 6 f32", [&] { gemm(narrow, narrow, square64); });
  expect_refused("rms_norm_forward", "gain is 1 x 8 f32, not 1 x 8 bf16",
                 [&] { k_.rms_norm_forward(s_, narrow, row_, 0, narrow, column_); });
  expect_refused("rms_norm_backward", "gradient is 1 x 8 bf16, not 1 x 8 f32", [&] {
    k_.rms_norm_backward(s_, narrow, narrow, narrow_row, column_, 1, none_, narrow, narrow_row);
  });
  expect_refused("add_column_sums", "bf16, not 1 x 8 f32",
                 [&] { k_.add_column_sums(s_, narrow, narrow_row); });
  expect_refused("embedding_backward", "bf16, not 6 x 8 f32",
                 [&] { k_.embedding_backward(s_, tokens_, narrow, 0, narrow); });
  expect_refused("row_maximum", "bf16, not 6 x 1 f32",
                 [&] { k_.row_maximum(s_, narrow, tensor(6, 1, DType::bf16)); });
  expect_refused("adamw", "bf16, not 6 x 8 f32",
                 [&] { k_.adamw(s_, {}, 1, none_, narrow, narrow, narrow, narrow, narrow); });
  expect_refused("adamw", "f64, not 6 x 8 f32",
                 [&] { k_.adamw(s_, {}, 1, none_, double_, double_, double_, double_, narrow); });
}

// A refused call has no later effect.
TEST_F(RefusedKernels, TheStreamGoesOn) {
  expect_refused("copy", "8 x 6", [&] { k_.copy(s_, x_, tall_); });
  k_.fill(s_, x_, 1);
  device_.synchronize();
  EXPECT_FALSE(backend_->guard().failed());
}

}  // namespace
}  // namespace stp::cpu::refused_kernels_test
