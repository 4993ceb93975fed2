// Every kernel checks its tensors at the call (lib/stp/device/kernels.h), and names itself. What the rules
// are is tested with the CPU's (refused_kernels_test.cc).
#include <stdexcept>

#include "kernels/kernel_cases.h"

namespace stp::kernel_cases {
namespace {

struct Refusal {
  std::string kernel;
  std::function<void(Kernels&, Stream&)> call;
};

void expect_refused(Kernels& kernels, Stream& stream, const Refusal& refusal, const std::string& reason) {
  try {
    refusal.call(kernels, stream);
    ADD_FAILURE() << refusal.kernel << " accepted: " << reason;
  } catch (const std::logic_error& error) {
    const std::string text = error.what();
    EXPECT_EQ(text.substr(0, refusal.kernel.size() + 2), refusal.kernel + ": ");
    EXPECT_NE(text.find(reason), std::string::npos) << text;
  }
}

KERNEL_CASE(WhatDoesNotFitIsRefused) {
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
  const auto with = [](auto method, auto... arguments) {
    return [=](Kernels& kernels, Stream& s) { (kernels.*method)(s, arguments...); };
  };
  const std::vector<Refusal> refusals{
      {"fill", with(&Kernels::fill, index, 1.0)},
      {"copy", with(&Kernels::copy, x, y)},
      {"copy_columns", with(&Kernels::copy_columns, x, int64_t{0}, y, int64_t{0}, int64_t{1})},
      {"scale", with(&Kernels::scale, 1.0, x, y)},
      {"add_rows", with(&Kernels::add_rows, x, int64_t{0}, y)},
      {"check_finite", with(&Kernels::check_finite, index, std::string("it"))},
      {"gemm", with(&Kernels::gemm, false, false, 1.0, x, y, 0.0, z)},
      {"rms_norm_forward", with(&Kernels::rms_norm_forward, x, y, 0.0, y, z)},
      {"rms_norm_backward", with(&Kernels::rms_norm_backward, x, y, x, z, 1.0, x, x, z)},
      {"bias_rope_forward", with(&Kernels::bias_rope_forward, shape, 1e4, x, y)},
      {"rope_backward", with(&Kernels::rope_backward, shape, 1e4, x)},
      {"add_column_sums", with(&Kernels::add_column_sums, x, z)},
      {"attention_forward", with(&Kernels::attention_forward, shape, x, y, z)},
      {"attention_backward", with(&Kernels::attention_backward, shape, x, y, z, y, x)},
      {"attention_merge_forward", with(&Kernels::attention_merge_forward, shape, block, x, y, y, z)},
      {"attention_merge_backward",
       with(&Kernels::attention_merge_backward, shape, block, x, y, y, z, y, x, y)},
      {"swiglu_forward", with(&Kernels::swiglu_forward, x, y)},
      {"swiglu_backward", with(&Kernels::swiglu_backward, x, y, x)},
      {"embedding_forward", with(&Kernels::embedding_forward, index, x, int64_t{0}, y)},
      {"embedding_backward", with(&Kernels::embedding_backward, index, x, int64_t{0}, z)},
      {"row_maximum", with(&Kernels::row_maximum, x, z)},
      {"exponential_sums", with(&Kernels::exponential_sums, x, z, index, int64_t{0}, z)},
      {"cross_entropy", with(&Kernels::cross_entropy, z, z, index, int64_t{0}, 1.0, x, z)},
      {"add_sum_of_squares", with(&Kernels::add_sum_of_squares, 1.0, x, z)},
      {"adamw", with(&Kernels::adamw, stp::AdamW{}, 1.0, Tensor{}, z, z, z, z, y)}};
  for (const Refusal& refusal : refusals)
    expect_refused(machine_->kernels(Attention::best), *stream, refusal,
                   refusal.kernel == "fill" || refusal.kernel == "check_finite" ? "i32" : ", not ");
  device.synchronize();
  EXPECT_FALSE(machine_->guard().failed());
}

// What fits, but there are no such kernels for.
KERNEL_CASE(WhatThereAreNoKernelsForIsRefused) {
  Device& device = machine_->device();
  const auto stream = device.make_stream("compute", StreamPriority::compute);
  const auto tensor = [&](int64_t rows, int64_t columns, DType type) {
    return device.allocate(*stream, MemoryKind::working, type, rows, columns);
  };
  const Tensor x = tensor(4, 4, DType::f64), y = tensor(4, 4, DType::f64), column = tensor(4, 1, DType::f64);
  const AttentionShape long_heads{.batch = 1, .seq = 1, .q_heads = 1, .kv_heads = 1, .head_dim = 258};
  const Tensor row = tensor(1, 3 * 258, GetParam()), head = tensor(1, 258, GetParam()),
               one = tensor(1, 1, statistics_type(GetParam()));
  const auto expect = [&](const std::string& kernel, const std::string& reason,
                          std::function<void(Kernels&, Stream&)> call) {
    expect_refused(machine_->kernels(Attention::best), *stream, {kernel, std::move(call)}, reason);
  };
  expect("gemm", "f64", [&](Kernels& k, Stream& s) { k.gemm(s, false, false, 1, x, x, 0, y); });
  expect("scale", "f64", [&](Kernels& k, Stream& s) { k.scale(s, 1, x, y); });
  expect("row_maximum", "f64", [&](Kernels& k, Stream& s) { k.row_maximum(s, x, column); });
  expect("adamw", "f64", [&](Kernels& k, Stream& s) { k.adamw(s, {}, 1, {}, x, x, x, y, y); });
  expect("rope_backward", "heads of 258",
         [&](Kernels& k, Stream& s) { k.rope_backward(s, long_heads, 1e4, row); });
  expect("attention_forward", "heads of 258",
         [&](Kernels& k, Stream& s) { k.attention_forward(s, long_heads, row, head, one); });
}

}  // namespace
}  // namespace stp::kernel_cases
