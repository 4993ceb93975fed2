#include "stp/cuda/launched_kernels.h"

#include <stdexcept>
#include <utility>

#include "stp/cuda/launch.h"
#include "stp/device/bfloat16.h"
#include "stp/device/kernel_checks.h"

// What calls are given goes by one name, at the call and where it is issued.
#pragma GCC diagnostic ignored "-Wshadow"

namespace stp::cuda {
namespace {

using launch::bf16;

void expect_columns(const char* kernel, int64_t columns) {
  if (columns > launch::kMaxColumns)
    throw std::logic_error(std::string(kernel) + ": rows of " + std::to_string(columns) +
                           " elements; at most " + std::to_string(launch::kMaxColumns));
}

void expect_head_dim(const char* kernel, const AttentionShape& shape) {
  if (shape.head_dim > launch::kMaxHeadDim)
    throw std::logic_error(std::string(kernel) + ": heads of " + std::to_string(shape.head_dim) +
                           " elements; at most " + std::to_string(launch::kMaxHeadDim));
}

[[noreturn]] void refuse_type(const char* kernel, DType type) {
  throw std::logic_error(std::string(kernel) + ": no CUDA kernel for " + to_string(type));
}

}  // namespace

// As enqueue_call: work(stream, T{}, values…) for the type that activations have in it.
template <typename Work, typename... Values>
void LaunchedKernels::enqueue_typed(const char* kernel, Stream& stream, DType type,
                                    std::tuple<Values...> values, Work work) {
  const auto typed = [&](auto zero) {
    enqueue_call(kernel, stream, std::tuple_cat(std::tuple(type), std::move(values)),
                 [work = std::move(work), zero](cudaStream_t s, DType, const Values&... each) {
                   work(s, zero, each...);
                 });
  };
  if (type == DType::f32) return typed(float{});
  if (type == DType::bf16) return typed(bf16{});
  refuse_type(kernel, type);
}

bool LaunchedKernels::on_tensor_cores(const AttentionShape& shape, DType type) const {
  return type == DType::bf16 && launch::attention_mma_supports(shape);
}

void LaunchedKernels::fill(Stream& stream, const Tensor& tensor, double value) {
  check::floating("fill", tensor);
  enqueue_call("fill", stream, std::tuple(tensor, value), [this](cudaStream_t s, auto& tensor, auto value) {
    const auto f32 = static_cast<float>(value);
    const Bfloat16 narrow(f32);
    const void* const element = tensor.type == DType::f64   ? static_cast<const void*>(&value)
                                : tensor.type == DType::f32 ? static_cast<const void*>(&f32)
                                                            : &narrow;
    launch::fill(s, at<void>(tensor), tensor.bytes(), element, bytes_of(tensor.type));
  });
}

void LaunchedKernels::copy(Stream& stream, const Tensor& from, const Tensor& to) {
  check::copy(from, to);
  enqueue_call("copy", stream, std::tuple(from, to), [this](cudaStream_t s, auto& from, auto& to) {
    if (from.elements() > 0) copy_bytes(s, at<void>(from), at<void>(to), from.bytes());
  });
}

void LaunchedKernels::scale(Stream& stream, double factor, const Tensor& in, const Tensor& out) {
  check::scale(in, out);
  enqueue_typed("scale", stream, in.type, std::tuple(factor, in, out),
                [this](cudaStream_t s, auto zero, auto factor, auto& in, auto& out) {
                  using T = decltype(zero);
                  launch::scale<T>(s, in.elements(), factor, at<T>(in), at<T>(out));
                });
}

void LaunchedKernels::check_finite(Stream& stream, const Tensor& tensor, const std::string& what) {
  check::floating("check_finite", tensor);
  enqueue_check(stream, what, [=, this](cudaStream_t s, int32_t* flag) {
    const auto check = [&]<typename T>(T /*zero*/) {
      launch::check_finite<T>(s, tensor.elements(), at<T>(tensor), 1, flag);
    };
    if (tensor.type == DType::f64) {
      check(double{});
    } else if (tensor.type == DType::f32) {
      check(float{});
    } else {
      check(bf16{});
    }
  });
}

void LaunchedKernels::gemm(Stream& stream, bool transpose_a, bool transpose_b, double alpha, const Tensor& a,
                           const Tensor& b, double beta, const Tensor& c) {
  const check::GemmSize size = check::gemm(transpose_a, transpose_b, a, b, c);
  if (a.type == DType::f64) refuse_type("gemm", a.type);
  if (c.elements() == 0) return;
  if (size.k == 0) return beta == 0 ? fill(stream, c, 0) : scale(stream, beta, c, c);
  enqueue_call("gemm", stream, std::tuple(transpose_a, transpose_b, size.k, alpha, a, b, beta, c),
               [this](cudaStream_t s, auto transpose_a, auto transpose_b, auto k, auto alpha, auto& a,
                      auto& b, auto beta, auto& c) {
                 multiply(s, {transpose_a, transpose_b, c.rows, c.columns, k, alpha, beta, at<void>(a),
                              at<void>(b), at<void>(c), a.type, c.type});
               });
}

void LaunchedKernels::rms_norm_forward(Stream& stream, const Tensor& x, const Tensor& gain, double epsilon,
                                       const Tensor& y, const Tensor& rstd) {
  check::rms_norm_forward(x, gain, y, rstd);
  expect_columns("rms_norm_forward", x.columns);
  enqueue_typed("rms_norm_forward", stream, x.type, std::tuple(x, gain, epsilon, y, rstd),
                [this](cudaStream_t s, auto zero, auto& x, auto& gain, auto epsilon, auto& y, auto& rstd) {
                  using T = decltype(zero);
                  launch::rms_norm_forward<T>(s, x.rows, x.columns, at<T>(x), at<T>(gain), epsilon, at<T>(y),
                                              at<float>(rstd));
                });
}

void LaunchedKernels::rms_norm_backward(Stream& stream, const Tensor& dy, const Tensor& x, const Tensor& gain,
                                        const Tensor& rstd, double residual_factor, const Tensor& residual,
                                        const Tensor& dx, const Tensor& gain_gradient) {
  check::rms_norm_backward(dy, x, gain, rstd, residual, dx, gain_gradient);
  expect_columns("rms_norm_backward", x.columns);
  enqueue_typed("rms_norm_backward", stream, x.type,
                std::tuple(dy, x, gain, rstd, residual_factor, residual, dx, gain_gradient),
                [this](cudaStream_t s, auto zero, auto& dy, auto& x, auto& gain, auto& rstd,
                       auto residual_factor, auto& residual, auto& dx, auto& gain_gradient) {
                  using T = decltype(zero);
                  scratch_.with(s, launch::rms_norm_backward_scratch(x.rows, x.columns), [&](void* scratch) {
                    launch::rms_norm_backward<T>(s, x.rows, x.columns, at<T>(dy), at<T>(x), at<T>(gain),
                                                 at<float>(rstd), residual_factor, at<T>(residual), at<T>(dx),
                                                 at<float>(gain_gradient), scratch);
                  });
                });
}

void LaunchedKernels::bias_rope_forward(Stream& stream, const AttentionShape& shape, double theta,
                                        const Tensor& bias, const Tensor& qkv) {
  check::bias_rope_forward(shape, bias, qkv);
  expect_columns("bias_rope_forward", qkv.columns);
  expect_head_dim("bias_rope_forward", shape);
  enqueue_typed("bias_rope_forward", stream, qkv.type, std::tuple(shape, theta, bias, qkv),
                [this](cudaStream_t s, auto zero, auto& shape, auto theta, auto& bias, auto& qkv) {
                  using T = decltype(zero);
                  launch::rotate<T>(s, shape, theta, 1, at<T>(bias), at<T>(qkv));
                });
}

void LaunchedKernels::rope_backward(Stream& stream, const AttentionShape& shape, double theta,
                                    const Tensor& qkv_gradient) {
  check::rope_backward(shape, qkv_gradient);
  expect_columns("rope_backward", qkv_gradient.columns);
  expect_head_dim("rope_backward", shape);
  enqueue_typed("rope_backward", stream, qkv_gradient.type, std::tuple(shape, theta, qkv_gradient),
                [this](cudaStream_t s, auto zero, auto& shape, auto theta, auto& qkv_gradient) {
                  using T = decltype(zero);
                  launch::rotate<T>(s, shape, theta, -1, nullptr, at<T>(qkv_gradient));
                });
}

void LaunchedKernels::add_column_sums(Stream& stream, const Tensor& gradient, const Tensor& bias_gradient) {
  check::add_column_sums(gradient, bias_gradient);
  expect_columns("add_column_sums", gradient.columns);
  enqueue_typed("add_column_sums", stream, gradient.type, std::tuple(gradient, bias_gradient),
                [this](cudaStream_t s, auto zero, auto& gradient, auto& bias_gradient) {
                  using T = decltype(zero);
                  scratch_.with(s, launch::add_column_sums_scratch(gradient.rows, gradient.columns),
                                [&](void* scratch) {
                                  launch::add_column_sums<T>(s, gradient.rows, gradient.columns,
                                                             at<T>(gradient), at<float>(bias_gradient),
                                                             scratch);
                                });
                });
}

void LaunchedKernels::attention_forward(Stream& stream, const AttentionShape& shape, const Tensor& qkv,
                                        const Tensor& out, const Tensor& log_sum_exp) {
  check::attention_forward(shape, qkv, out, log_sum_exp);
  const bool mma = on_tensor_cores(shape, qkv.type);
  if (!mma) expect_head_dim("attention_forward", shape);
  enqueue_typed(
      "attention_forward", stream, qkv.type, std::tuple(shape, qkv, out, log_sum_exp, mma),
      [this](cudaStream_t s, auto zero, auto& shape, auto& qkv, auto& out, auto& log_sum_exp, auto mma) {
        using T = decltype(zero);
        if (mma) {
          launch::attention_mma_forward(s, shape, at<bf16>(qkv), at<bf16>(out), at<float>(log_sum_exp));
        } else {
          launch::attention_forward<T>(s, shape, at<T>(qkv), at<T>(out), at<float>(log_sum_exp));
        }
      });
}

void LaunchedKernels::attention_backward(Stream& stream, const AttentionShape& shape, const Tensor& qkv,
                                         const Tensor& out, const Tensor& log_sum_exp,
                                         const Tensor& out_gradient, const Tensor& qkv_gradient) {
  check::attention_backward(shape, qkv, out, log_sum_exp, out_gradient, qkv_gradient);
  const bool mma = on_tensor_cores(shape, qkv.type);
  if (!mma) expect_head_dim("attention_backward", shape);
  enqueue_typed("attention_backward", stream, qkv.type,
                std::tuple(shape, qkv, out, log_sum_exp, out_gradient, qkv_gradient, mma),
                [this](cudaStream_t s, auto zero, auto& shape, auto& qkv, auto& out, auto& log_sum_exp,
                       auto& out_gradient, auto& qkv_gradient, auto mma) {
                  using T = decltype(zero);
                  scratch_.with(s, log_sum_exp.bytes(), [&](void* scratch) {
                    auto* const delta = static_cast<float*>(scratch);
                    launch::attention_delta<T>(s, shape, at<T>(out), at<T>(out_gradient), delta);
                    if (mma) {
                      launch::attention_mma_backward(s, shape, at<bf16>(qkv), at<float>(log_sum_exp),
                                                     at<bf16>(out_gradient), delta, at<bf16>(qkv_gradient));
                    } else {
                      launch::attention_backward<T>(s, shape, at<T>(qkv), at<float>(log_sum_exp),
                                                    at<T>(out_gradient), delta, at<T>(qkv_gradient));
                    }
                  });
                });
}

void LaunchedKernels::swiglu_forward(Stream& stream, const Tensor& gate_up, const Tensor& out) {
  check::swiglu_forward(gate_up, out);
  expect_columns("swiglu_forward", gate_up.columns);
  enqueue_typed("swiglu_forward", stream, out.type, std::tuple(gate_up, out),
                [this](cudaStream_t s, auto zero, auto& gate_up, auto& out) {
                  using T = decltype(zero);
                  launch::swiglu_forward<T>(s, out.rows, out.columns, at<T>(gate_up), at<T>(out));
                });
}

void LaunchedKernels::swiglu_backward(Stream& stream, const Tensor& gate_up, const Tensor& out_gradient,
                                      const Tensor& gate_up_gradient) {
  check::swiglu_backward(gate_up, out_gradient, gate_up_gradient);
  expect_columns("swiglu_backward", gate_up.columns);
  enqueue_typed("swiglu_backward", stream, out_gradient.type,
                std::tuple(gate_up, out_gradient, gate_up_gradient),
                [this](cudaStream_t s, auto zero, auto& gate_up, auto& out_gradient, auto& gate_up_gradient) {
                  using T = decltype(zero);
                  launch::swiglu_backward<T>(s, out_gradient.rows, out_gradient.columns, at<T>(gate_up),
                                             at<T>(out_gradient), at<T>(gate_up_gradient));
                });
}

void LaunchedKernels::embedding_forward(Stream& stream, const Tensor& tokens, const Tensor& table,
                                        int64_t first, const Tensor& out) {
  check::embedding_forward(tokens, table, out);
  expect_columns("embedding_forward", out.columns);
  enqueue_typed("embedding_forward", stream, table.type, std::tuple(tokens, table, first, out),
                [this](cudaStream_t s, auto zero, auto& tokens, auto& table, auto first, auto& out) {
                  using T = decltype(zero);
                  launch::embedding_forward<T>(s, out.rows, out.columns, at<int32_t>(tokens), at<T>(table),
                                               first, table.rows, at<T>(out));
                });
}

void LaunchedKernels::embedding_backward(Stream& stream, const Tensor& tokens, const Tensor& out_gradient,
                                         int64_t first, const Tensor& table_gradient) {
  check::embedding_backward(tokens, out_gradient, table_gradient);
  expect_columns("embedding_backward", out_gradient.columns);
  enqueue_typed(
      "embedding_backward", stream, out_gradient.type,
      std::tuple(tokens, out_gradient, first, table_gradient),
      [this](cudaStream_t s, auto zero, auto& tokens, auto& out_gradient, auto first, auto& table_gradient) {
        using T = decltype(zero);
        launch::embedding_backward<T>(s, out_gradient.rows, out_gradient.columns, at<int32_t>(tokens),
                                      at<T>(out_gradient), first, table_gradient.rows,
                                      at<float>(table_gradient));
      });
}

void LaunchedKernels::row_maximum(Stream& stream, const Tensor& logits, const Tensor& maximum) {
  check::row_maximum(logits, maximum);
  expect_columns("row_maximum", logits.columns);
  enqueue_typed("row_maximum", stream, logits.type, std::tuple(logits, maximum),
                [this](cudaStream_t s, auto zero, auto& logits, auto& maximum) {
                  using T = decltype(zero);
                  launch::row_maximum<T>(s, logits.rows, logits.columns, at<T>(logits), at<float>(maximum));
                });
}

void LaunchedKernels::exponential_sums(Stream& stream, const Tensor& logits, const Tensor& maximum,
                                       const Tensor& targets, int64_t first, const Tensor& sums) {
  check::exponential_sums(logits, maximum, targets, sums);
  expect_columns("exponential_sums", logits.columns);
  enqueue_typed(
      "exponential_sums", stream, logits.type, std::tuple(logits, maximum, targets, first, sums),
      [this](cudaStream_t s, auto zero, auto& logits, auto& maximum, auto& targets, auto first, auto& sums) {
        using T = decltype(zero);
        launch::exponential_sums<T>(s, logits.rows, logits.columns, at<T>(logits), at<float>(maximum),
                                    at<int32_t>(targets), first, at<float>(sums));
      });
}

void LaunchedKernels::cross_entropy(Stream& stream, const Tensor& maximum, const Tensor& sums,
                                    const Tensor& targets, int64_t first, double factor, const Tensor& logits,
                                    const Tensor& loss) {
  check::cross_entropy(maximum, sums, targets, logits, loss);
  expect_columns("cross_entropy", logits.columns);
  enqueue_typed(
      "cross_entropy", stream, logits.type, std::tuple(maximum, sums, targets, first, factor, logits, loss),
      [this](cudaStream_t s, auto zero, auto& maximum, auto& sums, auto& targets, auto first, auto factor,
             auto& logits, auto& loss) {
        using T = decltype(zero);
        launch::cross_entropy<T>(s, logits.rows, logits.columns, at<float>(maximum), at<float>(sums),
                                 at<int32_t>(targets), first, factor, at<T>(logits), at<float>(loss));
      });
}

void LaunchedKernels::add_sum_of_squares(Stream& stream, double factor, const Tensor& x,
                                         const Tensor& total) {
  check::add_sum_of_squares(x, total);
  enqueue_typed("add_sum_of_squares", stream, x.type, std::tuple(factor, x, total),
                [this](cudaStream_t s, auto zero, auto factor, auto& x, auto& total) {
                  using T = decltype(zero);
                  scratch_.with(s, launch::kSumOfSquaresScratch, [&](void* scratch) {
                    launch::add_sum_of_squares<T>(s, x.elements(), factor, at<T>(x), at<double>(total),
                                                  scratch);
                  });
                });
}

void LaunchedKernels::adamw(Stream& stream, const AdamW& options, double max_norm, const Tensor& total,
                            const Tensor& gradient, const Tensor& first_moment, const Tensor& second_moment,
                            const Tensor& master, const Tensor& weight) {
  const bool rounded = check::adamw(total, gradient, first_moment, second_moment, master, weight);
  if (gradient.type != DType::f32) refuse_type("adamw", gradient.type);
  if (weight.type != DType::f32 && weight.type != DType::bf16) refuse_type("adamw", weight.type);
  // No call that comes again: each step has its number.
  enqueue(stream, [=, this](cudaStream_t s) {
    const auto update = [&]<typename T>(T /*zero*/) {
      launch::adamw<T>(s, gradient.elements(), options, max_norm, at<double>(total), at<float>(gradient),
                       at<float>(first_moment), at<float>(second_moment), at<float>(master),
                       rounded ? at<T>(weight) : nullptr);
    };
    weight.type == DType::f32 ? update(float{}) : update(bf16{});
  });
}

}  // namespace stp::cuda
