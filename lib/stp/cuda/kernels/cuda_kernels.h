// The kernels of the CUDA backend. Each function is defined in the source of its kernel; types are f32 and
// bf16, and f64 for fill, copy, add_rows and check_finite alone (std::logic_error). All arithmetic of others
// is in float32. Results are the same bits in every run on one kind of GPU: no sum is made by atomics.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "stp/device/kernels.h"

namespace stp {
template <>
inline constexpr DType kTypeOf<__nv_bfloat16> = DType::bf16;
}  // namespace stp

namespace stp::cuda {

struct AttentionLayout;
class CudaDevice;
class CudnnAttention;
class Gemm;

/// Elements of the largest heads that there are kernels for.
inline constexpr int kMaxHeadDim = 256;

/// Which kernels attention in bf16 goes to. What they do not take goes to the next of these, and so does all
/// else.
enum class CudaAttention { cudnn, tensor_cores, plain };

struct GemmOptions {
  /// The candidates of cuBLASLt's heuristic are timed where a shape is first used, which waits for the GPU,
  /// instead of the first one being taken. For benchmarks.
  bool time_candidates = false;
  /// How many multiprocessors kernels are chosen for; 0: all. Fewer leave room for communication beside them.
  int multiprocessors = 0;
};

struct CudaKernelOptions {
  CudaAttention attention = CudaAttention::cudnn;
  GemmOptions gemm;
};

class CudaKernels : public Kernels {
 public:
  /// For streams of `device`, which outlives them. Throws CudaError, and InputError where a library is not
  /// there.
  explicit CudaKernels(CudaDevice& device, const CudaKernelOptions& options = {});
  ~CudaKernels() override;

 private:
  void run_fill(Stream& stream, const Tensor& tensor, double value) override;
  void run_copy(Stream& stream, const Tensor& from, const Tensor& to) override;
  void run_copy_columns(Stream& stream, const Tensor& from, int64_t from_column, const Tensor& to,
                        int64_t to_column, int64_t count) override;
  void run_scale(Stream& stream, double factor, const Tensor& in, const Tensor& out) override;
  void run_add_rows(Stream& stream, const Tensor& in, int64_t first, const Tensor& out) override;
  void run_check_finite(Stream& stream, const Tensor& tensor, const std::string& what) override;
  void run_gemm(Stream& stream, const GemmShape& shape, double alpha, const Tensor& a, const Tensor& b,
                double beta, const Tensor& c) override;
  void run_rms_norm_forward(Stream& stream, const Tensor& x, const Tensor& gain, double epsilon,
                            const Tensor& y, const Tensor& rstd) override;
  void run_rms_norm_backward(Stream& stream, const Tensor& dy, const Tensor& x, const Tensor& gain,
                             const Tensor& rstd, double residual_factor, const Tensor& residual,
                             const Tensor& dx, const Tensor& gain_gradient) override;
  void run_bias_rope_forward(Stream& stream, const AttentionShape& shape, double theta, const Tensor& bias,
                             const Tensor& qkv) override;
  void run_rope_backward(Stream& stream, const AttentionShape& shape, double theta,
                         const Tensor& qkv_gradient) override;
  void run_add_column_sums(Stream& stream, const Tensor& gradient, const Tensor& bias_gradient) override;
  void run_attention_forward(Stream& stream, const AttentionShape& shape, const Tensor& qkv,
                             const Tensor& out, const Tensor& log_sum_exp) override;
  void run_attention_backward(Stream& stream, const AttentionShape& shape, const Tensor& qkv,
                              const Tensor& out, const Tensor& log_sum_exp, const Tensor& out_gradient,
                              const Tensor& qkv_gradient) override;
  void run_attention_merge_forward(Stream& stream, const AttentionShape& shape, const AttentionBlock& block,
                                   const Tensor& qkv, const Tensor& kv, const Tensor& out,
                                   const Tensor& log_sum_exp) override;
  void run_attention_merge_backward(Stream& stream, const AttentionShape& shape, const AttentionBlock& block,
                                    const Tensor& qkv, const Tensor& kv, const Tensor& out,
                                    const Tensor& log_sum_exp, const Tensor& out_gradient,
                                    const Tensor& qkv_gradient, const Tensor& kv_gradient) override;
  void run_swiglu_forward(Stream& stream, const Tensor& gate_up, const Tensor& out) override;
  void run_swiglu_backward(Stream& stream, const Tensor& gate_up, const Tensor& out_gradient,
                           const Tensor& gate_up_gradient) override;
  void run_embedding_forward(Stream& stream, const Tensor& tokens, const Tensor& table, int64_t first,
                             const Tensor& out) override;
  void run_embedding_backward(Stream& stream, const Tensor& tokens, const Tensor& out_gradient, int64_t first,
                              const Tensor& table_gradient) override;
  void run_row_maximum(Stream& stream, const Tensor& logits, const Tensor& maximum) override;
  void run_exponential_sums(Stream& stream, const Tensor& logits, const Tensor& maximum,
                            const Tensor& targets, int64_t first, const Tensor& sums) override;
  void run_cross_entropy(Stream& stream, const Tensor& maximum, const Tensor& sums, const Tensor& targets,
                         int64_t first, double factor, const Tensor& logits, const Tensor& loss) override;
  void run_add_sum_of_squares(Stream& stream, double factor, const Tensor& x, const Tensor& total) override;
  void run_adamw(Stream& stream, const AdamW& options, double max_norm, const Tensor& total,
                 const Tensor& gradient, const Tensor& first_moment, const Tensor& second_moment,
                 const Tensor& master, const Tensor& weight) override;

  /// Which kernels take it; std::logic_error where none do.
  [[nodiscard]] CudaAttention attention_by(const char* kernel, const AttentionShape& shape, DType type) const;

  /// The same of the kernels of this backend (attention.h), which alone take another rank's keys.
  [[nodiscard]] CudaAttention own_attention_by(const char* kernel, const AttentionShape& shape,
                                               DType type) const;
  void own_forward(const char* kernel, Stream& stream, const AttentionShape& shape,
                   const AttentionLayout& layout, const Tensor& qkv, const Tensor& kv, const Tensor& out,
                   const Tensor& log_sum_exp) const;
  void own_backward(const char* kernel, Stream& stream, const AttentionShape& shape,
                    const AttentionLayout& layout, const Tensor& qkv, const Tensor& kv, const Tensor& out,
                    const Tensor& log_sum_exp, const Tensor& out_gradient, const Tensor& qkv_gradient,
                    const Tensor& kv_gradient);

  /// Where a kernel on the stream writes a number to fail the run, and which: "rank 0, compute, F0.1:
  /// `what`".
  static std::pair<int32_t*, int32_t> alarm(Stream& stream, const std::string& what);
  /// Memory for one call on the stream. Null for no bytes.
  std::byte* scratch(Stream& stream, size_t bytes);
  /// Rows of more elements are refused.
  static void expect_columns(const char* kernel, int64_t columns);
  /// The same for heads of more elements.
  static void expect_head(const char* kernel, const AttentionShape& shape);
  /// Calls work(T{}), T being float or __nv_bfloat16.
  template <typename Work>
  static void with_type(const char* kernel, DType type, Work work) {
    if (type == DType::f32) return work(float{});
    if (type == DType::bf16) return work(__nv_bfloat16{});
    refuse(kernel, "no CUDA kernel for " + to_string(type));
  }

  CudaDevice& device_;
  const CudaKernelOptions options_;
  std::unique_ptr<Gemm> gemm_;
  std::unique_ptr<CudnnAttention> cudnn_;  // null: not built, or not wanted
};

}  // namespace stp::cuda
