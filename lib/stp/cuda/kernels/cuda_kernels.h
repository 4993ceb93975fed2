// The kernels of the CUDA backend. The source of each kernel defines its run(). Types are f32 and bf16; only
// fill, copies, add_rows and check_finite take f64 (others throw std::logic_error). Arithmetic is in float32.
// All runs on one kind of GPU give the same bits: no sum uses atomics.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "stp/device/backend.h"
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

/// Elements of the largest supported head.
inline constexpr int kMaxHeadDim = 256;

/// The first choice of kernels for attention in bf16. A shape that they do not support goes to the next
/// choice, like all other types.
enum class CudaAttention { cudnn, tensor_cores, plain };

class CudaKernels : public Kernels {
 public:
  /// Makes the kernels for streams of `device`, which must outlive them. Throws CudaError, and InputError if
  /// a library is missing.
  explicit CudaKernels(CudaDevice& device, CudaAttention attention = CudaAttention::cudnn,
                       GemmOptions gemm = {});
  ~CudaKernels() override;
  std::string lack_of(const kernel::Gemm& gemm) override;

 private:
  using Kernels::run;
#define STP_RUN_KERNEL(name) run(Stream& stream, const kernel::name& k) override
  void STP_KERNELS(STP_RUN_KERNEL);
#undef STP_RUN_KERNEL

  /// cuDNN, if it is to be asked for attention of this type; else null.
  [[nodiscard]] CudnnAttention* cudnn_for(DType type) const;

  /// Which of this backend's own kernels support the shape (attention.h). Only they support another rank's
  /// keys. Throws std::logic_error if there are none.
  [[nodiscard]] CudaAttention own_attention_by(const char* name, const AttentionShape& shape,
                                               DType type) const;
  void own_forward(Stream& stream, const AttentionLayout& layout, const kernel::AttentionForward& k,
                   const TensorView& kv) const;
  void own_backward(Stream& stream, const AttentionLayout& layout, const kernel::AttentionBackward& k,
                    const TensorView& kv, const TensorView& kv_gradient);

  /// An address and a number: a kernel on the stream that writes the number there fails the run with "rank 0,
  /// compute, F0.1: `what`".
  static std::pair<int32_t*, int32_t> alarm(Stream& stream, const std::string& what);
  /// Memory for one call on the stream. Null for 0 bytes.
  std::byte* scratch(Stream& stream, size_t bytes);
  /// Refuses rows that have too many elements.
  static void expect_columns(const char* name, int64_t columns);
  /// Refuses heads that have too many elements.
  static void expect_head(const char* name, const AttentionShape& shape);
  /// Calls work(T{}) with T = float or __nv_bfloat16.
  template <typename Kernel, typename Work>
  static void with_type(const Kernel& k, Work work) {
    if (k.type() == DType::f32) return work(float{});
    if (k.type() == DType::bf16) return work(__nv_bfloat16{});
    kernel::refuse(k.name, "no CUDA kernel for " + to_string(k.type()));
  }
  /// The same for `rows`, whose columns it refuses if they are too many, unless there are no elements.
  template <typename Kernel, typename Work>
  static void with_rows(const Kernel& k, const TensorView& rows, Work work) {
    expect_columns(k.name, rows.columns);
    with_type(k, [&](auto zero) {
      if (rows.elements() > 0) work(zero);
    });
  }

  CudaDevice& device_;
  const CudaAttention attention_;
  std::unique_ptr<Gemm> gemm_;
  std::unique_ptr<CudnnAttention> cudnn_;  // null: not built, or not wanted
};

}  // namespace stp::cuda
