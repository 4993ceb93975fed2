#include "stp/cuda/kernels/cuda_kernels.h"

#include <stdexcept>
#include <utility>

#include "stp/cuda/cuda_check.h"
#include "stp/cuda/cuda_device.h"
#include "stp/cuda/kernels/attention.h"
#include "stp/cuda/libraries/cudnn_attention.h"
#include "stp/cuda/libraries/gemm.h"

namespace stp::cuda {
namespace {

constexpr int64_t kMostColumns = INT32_MAX / 2;  // kernels count those of a row, or of two, in an int

// Scratch memory for statistics in cuDNN's order, and behind them its workspace.
size_t statistics_bytes(const Tensor& log_sum_exp) {
  constexpr size_t kAlignment = 256;
  return (log_sum_exp.bytes() + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

CudaKernels::CudaKernels(CudaDevice& device, const CudaKernelOptions& options)
    : device_(device), options_(options), gemm_(std::make_unique<Gemm>(device, options.gemm)) {
  if (options.attention == CudaAttention::cudnn) cudnn_ = make_cudnn_attention();
}

CudaKernels::~CudaKernels() {
  if (device_.run().left_at_work()) static_cast<void>(cudnn_.release());  // its end would wait for the GPU
}

std::byte* CudaKernels::scratch(Stream& stream, size_t bytes) { return device_.scratch(stream, bytes); }

std::pair<int32_t*, int32_t> CudaKernels::alarm(Stream& stream, const std::string& what) {
  const CudaStream& ours = cuda_stream(stream);
  return ours.device().run().alarm(ours.where() + ": " + what);
}

void CudaKernels::expect_columns(const char* kernel, int64_t columns) {
  if (columns > kMostColumns)
    refuse(kernel,
           "rows of " + std::to_string(columns) + " elements; at most " + std::to_string(kMostColumns));
}

void CudaKernels::expect_head(const char* kernel, const AttentionShape& shape) {
  if (shape.head_dim > kMaxHeadDim)
    refuse(kernel, "heads of " + std::to_string(shape.head_dim) + " elements; at most " +
                       std::to_string(kMaxHeadDim));
}

// Either may be in the host's memory.
void CudaKernels::run_copy(Stream& stream, const Tensor& from, const Tensor& to) {
  if (from.elements() == 0) return;
  static constexpr char kCopy = 0;  // its address identifies copies
  cuda_stream(stream).launch(&kCopy,
                             [in = address(from), out = address(to), bytes = from.bytes()](cudaStream_t on) {
                               STP_CUDA(cudaMemcpyAsync(out, in, bytes, cudaMemcpyDefault, on));
                             });
}

void CudaKernels::run_copy_columns(Stream& stream, const Tensor& from, int64_t from_column, const Tensor& to,
                                   int64_t to_column, int64_t count) {
  if (from.rows == 0 || count == 0) return;
  const size_t element = bytes_of(from.type);
  // Not in graphs, which cannot be updated to another copy of rows.
  cuda_stream(stream).give([in = address(from) + from_column * element,
                            out = address(to) + to_column * element, in_pitch = from.columns * element,
                            out_pitch = to.columns * element, width = count * element,
                            rows = static_cast<size_t>(from.rows)](cudaStream_t on) {
    STP_CUDA(cudaMemcpy2DAsync(out, out_pitch, in, in_pitch, width, rows, cudaMemcpyDeviceToDevice, on));
  });
}

CudaAttention CudaKernels::attention_by(const char* kernel, const AttentionShape& shape, DType type) const {
  if (type == DType::bf16 && cudnn_ && cudnn_->supports(shape)) return CudaAttention::cudnn;
  return own_attention_by(kernel, shape, type);
}

CudaAttention CudaKernels::own_attention_by(const char* kernel, const AttentionShape& shape,
                                            DType type) const {
  if (type == DType::bf16 && options_.attention != CudaAttention::plain && attention_mma_supports(shape))
    return CudaAttention::tensor_cores;
  expect_head(kernel, shape);
  return CudaAttention::plain;
}

void CudaKernels::run_attention_forward(Stream& stream, const AttentionShape& shape, const Tensor& qkv,
                                        const Tensor& out, const Tensor& log_sum_exp) {
  if (attention_by("attention_forward", shape, qkv.type) != CudaAttention::cudnn)
    return own_forward("attention_forward", stream, shape, layout_of(shape), qkv, qkv, out, log_sum_exp);
  const size_t bytes = statistics_bytes(log_sum_exp);
  std::byte* const memory = scratch(stream, bytes + cudnn_->forward_workspace(shape));
  auto* const by_head = reinterpret_cast<float*>(memory);
  cudnn_->forward(stream, shape, data<__nv_bfloat16>(qkv), data<__nv_bfloat16>(out), by_head, memory + bytes);
  statistics_by_token(stream, shape, by_head, data<float>(log_sum_exp));
}

void CudaKernels::run_attention_backward(Stream& stream, const AttentionShape& shape, const Tensor& qkv,
                                         const Tensor& out, const Tensor& log_sum_exp,
                                         const Tensor& out_gradient, const Tensor& qkv_gradient) {
  if (attention_by("attention_backward", shape, qkv.type) != CudaAttention::cudnn)
    return own_backward("attention_backward", stream, shape, layout_of(shape), qkv, qkv, out, log_sum_exp,
                        out_gradient, qkv_gradient, qkv_gradient);
  const size_t bytes = statistics_bytes(log_sum_exp);
  std::byte* const memory = scratch(stream, bytes + cudnn_->backward_workspace(shape));
  auto* const by_head = reinterpret_cast<float*>(memory);
  statistics_by_head(stream, shape, data<float>(log_sum_exp), by_head);
  cudnn_->backward(stream, shape, data<__nv_bfloat16>(qkv), data<__nv_bfloat16>(out), by_head,
                   data<__nv_bfloat16>(out_gradient), data<__nv_bfloat16>(qkv_gradient), memory + bytes);
}

void CudaKernels::run_attention_merge_forward(Stream& stream, const AttentionShape& shape,
                                              const AttentionBlock& block, const Tensor& qkv,
                                              const Tensor& kv, const Tensor& out,
                                              const Tensor& log_sum_exp) {
  own_forward("attention_merge_forward", stream, shape, layout_of(shape, block), qkv, kv, out, log_sum_exp);
}

void CudaKernels::run_attention_merge_backward(Stream& stream, const AttentionShape& shape,
                                               const AttentionBlock& block, const Tensor& qkv,
                                               const Tensor& kv, const Tensor& out, const Tensor& log_sum_exp,
                                               const Tensor& out_gradient, const Tensor& qkv_gradient,
                                               const Tensor& kv_gradient) {
  own_backward("attention_merge_backward", stream, shape, layout_of(shape, block), qkv, kv, out, log_sum_exp,
               out_gradient, qkv_gradient, kv_gradient);
}

void CudaKernels::own_forward(const char* kernel, Stream& stream, const AttentionShape& shape,
                              const AttentionLayout& layout, const Tensor& qkv, const Tensor& kv,
                              const Tensor& out, const Tensor& log_sum_exp) const {
  if (own_attention_by(kernel, shape, qkv.type) == CudaAttention::tensor_cores)
    return attention_mma_forward(stream, shape, layout,
                                 {data<__nv_bfloat16>(qkv), data<__nv_bfloat16>(kv), data<__nv_bfloat16>(out),
                                  data<float>(log_sum_exp)});
  with_type(kernel, qkv.type, [&]<typename T>(T) {
    attention_plain_forward<T>(stream, shape, layout,
                               {data<T>(qkv), data<T>(kv), data<T>(out), data<float>(log_sum_exp)});
  });
}

void CudaKernels::own_backward(const char* kernel, Stream& stream, const AttentionShape& shape,
                               const AttentionLayout& layout, const Tensor& qkv, const Tensor& kv,
                               const Tensor& out, const Tensor& log_sum_exp, const Tensor& out_gradient,
                               const Tensor& qkv_gradient, const Tensor& kv_gradient) {
  const CudaAttention by = own_attention_by(kernel, shape, qkv.type);
  auto* const delta = reinterpret_cast<float*>(scratch(stream, log_sum_exp.bytes()));
  with_type(kernel, qkv.type, [&]<typename T>(T) {
    const AttentionBackward<T> on{data<T>(qkv),          data<T>(kv), data<float>(log_sum_exp),
                                  data<T>(out_gradient), delta,       data<T>(qkv_gradient),
                                  data<T>(kv_gradient)};
    attention_delta(stream, shape, data<T>(out), on.out_gradient, delta);
    if constexpr (std::is_same_v<T, __nv_bfloat16>)
      if (by == CudaAttention::tensor_cores) return attention_mma_backward(stream, shape, layout, on);
    attention_plain_backward<T>(stream, shape, layout, on);
  });
}

}  // namespace stp::cuda
