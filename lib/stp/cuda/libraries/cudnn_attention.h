// Causal grouped-query attention in bf16 by cuDNN's fused kernels, through the headers of cudnn-frontend,
// which only cudnn_attention.cc includes.
#pragma once

#include <cuda_bf16.h>

#include <memory>
#include <optional>
#include <string>

#include "stp/device/attention_shape.h"
#include "stp/device/stream.h"

namespace stp::cuda {

class CudnnAttention {
 public:
  virtual ~CudnnAttention() = default;

  /// Bytes; none if cuDNN does not support this direction of the shape on the current device, or wants too
  /// many. The first call for a shape builds its execution plan and may take a second. forward() and
  /// backward() require a direction that has bytes.
  virtual std::optional<size_t> forward_workspace(const AttentionShape& shape) = 0;
  virtual std::optional<size_t> backward_workspace(const AttentionShape& shape) = 0;
  /// Rows as in attention_shape.h; log_sum_exp is by sample, head and token. Throw CudaError.
  virtual void forward(Stream& stream, const AttentionShape& shape, const __nv_bfloat16* qkv,
                       __nv_bfloat16* out, float* log_sum_exp, void* workspace) = 0;
  /// The same bits in every run.
  virtual void backward(Stream& stream, const AttentionShape& shape, const __nv_bfloat16* qkv,
                        const __nv_bfloat16* out, const float* log_sum_exp, const __nv_bfloat16* out_gradient,
                        __nv_bfloat16* qkv_gradient, void* workspace) = 0;
};

/// Why make_cudnn_attention() would give null; "" if it would not. Opens no context.
std::string lack_of_cudnn_attention();
/// Of the loaded library; only where there is no such lack.
std::string cudnn_version();
/// Null if cudnn-frontend's headers were missing in the build, or cuDNN is missing. Throws CudaError.
std::unique_ptr<CudnnAttention> make_cudnn_attention();

}  // namespace stp::cuda
