// Rotary embedding and attention.
#include "kernels/kernel_cases.h"

namespace stp::kernel_cases {
namespace {

TEST_P(KernelCases, BiasAndRope) {
  std::vector<AttentionShape> shapes{
      {.batch = 1, .seq = 1, .q_heads = 1, .kv_heads = 1, .head_dim = 2},
      {.batch = 2, .seq = 9, .q_heads = 4, .kv_heads = 2, .head_dim = 6},
      {.batch = 1, .seq = 3000, .q_heads = 1, .kv_heads = 1, .head_dim = 2},  // late positions
      {.batch = 2, .seq = 5, .q_heads = 6, .kv_heads = 2, .head_dim = 64},
      {.batch = 1, .seq = 7, .q_heads = 2, .kv_heads = 1, .head_dim = 80},
      {.batch = 1, .seq = 8, .q_heads = 14, .kv_heads = 2, .head_dim = 128},
      {.batch = 1, .seq = 3, .q_heads = 2, .kv_heads = 2, .head_dim = 256},
      {.batch = 1, .seq = 5, .q_heads = 4, .kv_heads = 2, .head_dim = 64, .unrotated = 32},
      {.batch = 2, .seq = 3, .q_heads = 2, .kv_heads = 1, .head_dim = 24, .unrotated = 18},
      {.batch = 0, .seq = 3, .q_heads = 2, .kv_heads = 2, .head_dim = 4}};
  for (const int cp_index : {0, 1, 2})  // of a ring: two pieces of each sample
    shapes.push_back(
        {.batch = 2, .seq = 6, .q_heads = 2, .kv_heads = 1, .head_dim = 8, .cp = 3, .cp_index = cp_index});
  if (large()) shapes.push_back({.batch = 2, .seq = 4096, .q_heads = 4, .kv_heads = 1, .head_dim = 128});
  for (const AttentionShape& shape : shapes)
    for (const double theta : {1e4, 1e6}) {
      expect_exact({in(1, shape.qkv_columns()), in_out(shape.tokens(), shape.qkv_columns())},
                   [&](const On& on) {
                     on.issue(kernel::BiasRopeForward{shape, theta, on.t[0], on.t[1]});
                   });
      expect_exact({in_out(shape.tokens(), shape.qkv_columns())}, [&](const On& on) {
        on.issue(kernel::RopeBackward{shape, theta, on.t[0]});
      });
    }
}

std::string words(const AttentionShape& shape) {
  return std::to_string(shape.batch) + " x " + std::to_string(shape.seq) + " tokens, " +
         std::to_string(shape.q_heads) + " / " + std::to_string(shape.kv_heads) + " heads of " +
         std::to_string(shape.head_dim);
}

// One token; tiles that end early, and several of them; heads that share keys; every size that kernels are
// made for, and sizes between.
std::vector<AttentionShape> shapes_of_whole_pieces() {
  std::vector<AttentionShape> shapes{{.batch = 1, .seq = 1, .q_heads = 1, .kv_heads = 1, .head_dim = 8},
                                     {.batch = 2, .seq = 65, .q_heads = 4, .kv_heads = 2, .head_dim = 64},
                                     {.batch = 1, .seq = 130, .q_heads = 2, .kv_heads = 1, .head_dim = 80},
                                     {.batch = 1, .seq = 70, .q_heads = 2, .kv_heads = 2, .head_dim = 128},
                                     {.batch = 1, .seq = 33, .q_heads = 3, .kv_heads = 1, .head_dim = 96},
                                     {.batch = 1, .seq = 64, .q_heads = 1, .kv_heads = 1, .head_dim = 40},
                                     {.batch = 2, .seq = 0, .q_heads = 2, .kv_heads = 1, .head_dim = 64}};
  if (large()) {
    shapes.push_back({.batch = 2, .seq = 1024, .q_heads = 8, .kv_heads = 2, .head_dim = 128});
    shapes.push_back({.batch = 1, .seq = 777, .q_heads = 6, .kv_heads = 3, .head_dim = 64});
  }
  return shapes;
}

TEST_P(KernelCases, AttentionOnTensorCores) {
  if (GetParam() != DType::bf16) GTEST_SKIP() << "they take bf16 alone";
  expect_attention(shapes_of_whole_pieces(), CudaAttention::tensor_cores);
}

TEST_P(KernelCases, AttentionByPlainKernels) {
  std::vector<AttentionShape> shapes{{.batch = 1, .seq = 1, .q_heads = 1, .kv_heads = 1, .head_dim = 8},
                                     {.batch = 2, .seq = 35, .q_heads = 4, .kv_heads = 2, .head_dim = 64},
                                     {.batch = 1, .seq = 66, .q_heads = 2, .kv_heads = 1, .head_dim = 80},
                                     {.batch = 1, .seq = 18, .q_heads = 2, .kv_heads = 2, .head_dim = 128},
                                     {.batch = 1, .seq = 32, .q_heads = 3, .kv_heads = 1, .head_dim = 33}};
  if (large())
    for (const AttentionShape& shape : shapes_of_whole_pieces()) shapes.push_back(shape);
  expect_attention(shapes, CudaAttention::plain);
}

// A step of a ring: of all queries to the first piece of another rank's keys, and of the second piece of
// queries to all; pieces that fill no tile, or several.
TEST_P(KernelCases, AttentionOfARing) {
  for (const CudaAttention attention : {CudaAttention::tensor_cores, CudaAttention::plain}) {
    if (attention == CudaAttention::tensor_cores && GetParam() != DType::bf16) continue;
    std::vector<AttentionShape> shapes{{.batch = 2, .seq = 2, .q_heads = 1, .kv_heads = 1, .head_dim = 8},
                                       {.batch = 2, .seq = 36, .q_heads = 4, .kv_heads = 2, .head_dim = 64},
                                       {.batch = 1, .seq = 130, .q_heads = 2, .kv_heads = 1, .head_dim = 40},
                                       {.batch = 1, .seq = 66, .q_heads = 2, .kv_heads = 1, .head_dim = 80},
                                       {.batch = 1, .seq = 34, .q_heads = 1, .kv_heads = 1, .head_dim = 128},
                                       {.batch = 1, .seq = 128, .q_heads = 2, .kv_heads = 2, .head_dim = 16}};
    if (large()) shapes.push_back({.batch = 1, .seq = 1000, .q_heads = 8, .kv_heads = 2, .head_dim = 128});
    for (AttentionShape shape : shapes) {
      shape.cp = 2;
      shape.cp_index = 1;
      for (const int other : {0, 2}) expect_ring_step(shape, attention_block(shape, other), attention);
    }
  }
}

// As the backend chooses: cuDNN where it was built; what the tensor cores' kernels do not take goes to the
// plain ones.
TEST_P(KernelCases, AttentionOfAnyHead) {
  std::vector<AttentionShape> shapes{{.batch = 1, .seq = 20, .q_heads = 2, .kv_heads = 1, .head_dim = 12},
                                     {.batch = 2, .seq = 5, .q_heads = 2, .kv_heads = 1, .head_dim = 1},
                                     {.batch = 1, .seq = 17, .q_heads = 2, .kv_heads = 1, .head_dim = 200},
                                     {.batch = 1, .seq = 9, .q_heads = 2, .kv_heads = 2, .head_dim = 256},
                                     {.batch = 1, .seq = 34, .q_heads = 2, .kv_heads = 1, .head_dim = 64}};
  if (large())
    for (const AttentionShape& shape : shapes_of_whole_pieces()) shapes.push_back(shape);
  expect_attention(shapes, CudaAttention::cudnn);
}

}  // namespace

void KernelCases::expect_attention(const std::vector<AttentionShape>& shapes, CudaAttention attention) {
  for (const AttentionShape& shape : shapes) {
    SCOPED_TRACE(words(shape));
    const Operand qkv = in(shape.tokens(), shape.qkv_columns());
    const auto forward = expect_exact(
        {qkv, out(shape.tokens(), shape.q_columns()), out(shape.tokens(), shape.q_heads, Kind::statistics)},
        [&](const On& on) {
          on.issue(kernel::AttentionForward{shape, on.t[0], on.t[1], on.t[2]});
        },
        kAttention, attention);
    const Operand result = kept(shape.tokens(), shape.q_columns(), forward[1]),
                  log_sum_exp = kept(shape.tokens(), shape.q_heads, forward[2], Kind::statistics);
    expect_exact(
        {qkv, result, log_sum_exp, in(shape.tokens(), shape.q_columns()),
         out(shape.tokens(), shape.qkv_columns())},
        [&](const On& on) {
          on.issue(kernel::AttentionBackward{shape, on.t[0], on.t[1], on.t[2], on.t[3], on.t[4]});
        },
        kAttention, attention);
    if (HasFailure()) return;
  }
}

void KernelCases::expect_ring_step(const AttentionShape& shape, const AttentionBlock& block,
                                   CudaAttention attention) {
  SCOPED_TRACE(words(shape) + ", queries from " + std::to_string(block.first_query) + " on, " +
               std::to_string(block.keys) + " keys");
  const Operand qkv = in(shape.tokens(), shape.qkv_columns()),
                kv = in(shape.tokens(), 2 * shape.kv_columns());
  const auto forward = expect_exact(
      {qkv, kv, in_out(shape.tokens(), shape.q_columns()),
       in_out(shape.tokens(), shape.q_heads, Kind::statistics)},
      [&](const On& on) {
        on.issue(kernel::AttentionForward{shape, on.t[0], on.t[2], on.t[3], block, on.t[1]});
      },
      kAttention, attention);
  const Operand result = kept(shape.tokens(), shape.q_columns(), forward[2]),
                log_sum_exp = kept(shape.tokens(), shape.q_heads, forward[3], Kind::statistics);
  expect_exact(
      {qkv, kv, result, log_sum_exp, in(shape.tokens(), shape.q_columns()),
       in_out(shape.tokens(), shape.qkv_columns()), out(shape.tokens(), 2 * shape.kv_columns())},
      [&](const On& on) {
        on.issue(kernel::AttentionBackward{shape, on.t[0], on.t[2], on.t[3], on.t[4], on.t[5], block, on.t[1],
                                           on.t[6]});
      },
      kAttention, attention);
}

}  // namespace stp::kernel_cases
