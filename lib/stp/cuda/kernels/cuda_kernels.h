// The kernels of the CUDA backend. Each run() is defined in the source of its kernel; types are f32 and
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
  using Kernels::run;
  void run(Stream& stream, const kernel::Fill& k) override;
  void run(Stream& stream, const kernel::Copy& k) override;
  void run(Stream& stream, const kernel::CopyColumns& k) override;
  void run(Stream& stream, const kernel::Scale& k) override;
  void run(Stream& stream, const kernel::AddRows& k) override;
  void run(Stream& stream, const kernel::CheckFinite& k) override;
  void run(Stream& stream, const kernel::Gemm& k) override;
  void run(Stream& stream, const kernel::RmsNormForward& k) override;
  void run(Stream& stream, const kernel::RmsNormBackward& k) override;
  void run(Stream& stream, const kernel::BiasRopeForward& k) override;
  void run(Stream& stream, const kernel::RopeBackward& k) override;
  void run(Stream& stream, const kernel::AddColumnSums& k) override;
  void run(Stream& stream, const kernel::AttentionForward& k) override;
  void run(Stream& stream, const kernel::AttentionBackward& k) override;
  void run(Stream& stream, const kernel::AttentionMergeForward& k) override;
  void run(Stream& stream, const kernel::AttentionMergeBackward& k) override;
  void run(Stream& stream, const kernel::SwigluForward& k) override;
  void run(Stream& stream, const kernel::SwigluBackward& k) override;
  void run(Stream& stream, const kernel::EmbeddingForward& k) override;
  void run(Stream& stream, const kernel::EmbeddingBackward& k) override;
  void run(Stream& stream, const kernel::RowMaximum& k) override;
  void run(Stream& stream, const kernel::ExponentialSums& k) override;
  void run(Stream& stream, const kernel::CrossEntropy& k) override;
  void run(Stream& stream, const kernel::AddSumOfSquares& k) override;
  void run(Stream& stream, const kernel::AdamW& k) override;

  /// Which kernels take it; std::logic_error where none do.
  [[nodiscard]] CudaAttention attention_by(const char* name, const AttentionShape& shape, DType type) const;

  /// The same of the kernels of this backend (attention.h), which alone take another rank's keys.
  [[nodiscard]] CudaAttention own_attention_by(const char* name, const AttentionShape& shape,
                                               DType type) const;
  template <typename Kernel>
  void own_forward(Stream& stream, const AttentionLayout& layout, const Kernel& k,
                   const TensorView& kv) const;
  template <typename Kernel>
  void own_backward(Stream& stream, const AttentionLayout& layout, const Kernel& k, const TensorView& kv,
                    const TensorView& kv_gradient);

  /// Where a kernel on the stream writes a number to fail the run, and which: "rank 0, compute, F0.1:
  /// `what`".
  static std::pair<int32_t*, int32_t> alarm(Stream& stream, const std::string& what);
  /// Memory for one call on the stream. Null for no bytes.
  std::byte* scratch(Stream& stream, size_t bytes);
  /// Rows of more elements are refused.
  static void expect_columns(const char* name, int64_t columns);
  /// The same for heads of more elements.
  static void expect_head(const char* name, const AttentionShape& shape);
  /// Calls work(T{}), T being float or __nv_bfloat16.
  template <typename Kernel, typename Work>
  static void with_type(const Kernel& k, Work work) {
    if (k.type() == DType::f32) return work(float{});
    if (k.type() == DType::bf16) return work(__nv_bfloat16{});
    kernel::refuse(k.name, "no CUDA kernel for " + to_string(k.type()));
  }

  CudaDevice& device_;
  const CudaKernelOptions options_;
  std::unique_ptr<Gemm> gemm_;
  std::unique_ptr<CudnnAttention> cudnn_;  // null: not built, or not wanted
};

}  // namespace stp::cuda
