// Checks of the arguments of kernels. A misfit is a std::logic_error: "<kernel>: <why>".
#pragma once

#include <initializer_list>
#include <string>

#include "stp/device/attention_shape.h"
#include "stp/device/tensor.h"

namespace stp::kernel {

struct Expected {
  const char* name;
  const TensorView& tensor;
  int64_t rows, columns;
  DType type;
};
/// Refuses `x` if it is empty, released or of i32, and any of `others` that is not as expected.
void expect(const char* kernel, const TensorView& x, std::initializer_list<Expected> others = {});
/// Query heads must divide evenly among key heads; for rotation, head_dim must be even.
void expect_heads(const char* kernel, const AttentionShape& shape, bool rotated);
void expect_attention(const char* kernel, const AttentionShape& shape, const TensorView& qkv,
                      const TensorView& out, const TensorView& log_sum_exp);
void expect_block(const char* kernel, const AttentionShape& shape, const AttentionBlock& block,
                  const TensorView& kv, DType type);
[[noreturn]] void refuse(const char* kernel, const std::string& why);

}  // namespace stp::kernel
