#include "stp/cuda/kernels/cuda_kernels.h"

#include "stp/cuda/cuda_check.h"
#include "stp/cuda/cuda_device.h"
#include "stp/cuda/examine.h"
#include "stp/cuda/kernels/attention.h"
#include "stp/cuda/libraries/cudnn_attention.h"
#include "stp/cuda/libraries/gemm.h"

namespace stp::cuda {
namespace {

constexpr int64_t kMostColumns = INT32_MAX / 2;  // kernels count one or two rows' columns in an int

// Scratch memory for statistics in cuDNN's order, and behind them its workspace.
size_t statistics_bytes(const TensorView& log_sum_exp) {
  constexpr size_t kAlignment = 256;
  return (log_sum_exp.bytes() + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

CudaKernels::CudaKernels(CudaDevice& device, CudaAttention attention, GemmOptions gemm)
    : device_(device), attention_(attention), gemm_(std::make_unique<Gemm>(device, gemm)) {
  if (attention == CudaAttention::cudnn) cudnn_ = make_cudnn_attention();
}

CudaKernels::~CudaKernels() {
  if (device_.run().left_at_work()) static_cast<void>(cudnn_.release());  // its end would wait for the GPU
}

std::byte* CudaKernels::scratch(Stream& stream, size_t bytes) { return device_.scratch(stream, bytes); }

std::pair<int32_t*, int32_t> CudaKernels::alarm(Stream& stream, const std::string& what) {
  const CudaStream& ours = cuda_stream(stream);
  return ours.device().run().alarm(ours.where() + ": " + what);
}

void CudaKernels::expect_columns(const char* name, int64_t columns) {
  if (columns > kMostColumns)
    kernel::refuse(
        name, "rows of " + std::to_string(columns) + " elements; at most " + std::to_string(kMostColumns));
}

void CudaKernels::expect_head(const char* name, const AttentionShape& shape) {
  if (shape.head_dim > kMaxHeadDim)
    kernel::refuse(name, "heads of " + std::to_string(shape.head_dim) + " elements; at most " +
                             std::to_string(kMaxHeadDim));
}

void CudaKernels::run(Stream& stream, const kernel::Copy& k) {
  if (k.from.elements() == 0) return;
  static constexpr char kCopy = 0;  // its address identifies copies
  cuda_stream(stream).launch(
      &kCopy, [&] { return bytes_of_values(k.from.at, k.to.at, k.from.bytes()); },
      [k](cudaStream_t on) {
        STP_CUDA(cudaMemcpyAsync(k.to.at, k.from.at, k.from.bytes(), cudaMemcpyDefault, on));
      });
}

void CudaKernels::run(Stream& stream, const kernel::CopyColumns& k) {
  if (k.from.rows == 0 || k.count == 0) return;
  // Not in graphs: a graph cannot be updated to another copy of rows.
  cuda_stream(stream).launch([k, element = bytes_of(k.from.type)](cudaStream_t on) {
    STP_CUDA(cudaMemcpy2DAsync(k.to.at + k.to_column * element, k.to.columns * element,
                               k.from.at + k.from_column * element, k.from.columns * element,
                               k.count * element, static_cast<size_t>(k.from.rows), cudaMemcpyDeviceToDevice,
                               on));
  });
}

void CudaKernels::run(Stream& stream, const kernel::Gemm& k) {
  const GemmShape shape = k.shape();
  if (k.type() == DType::f64) kernel::refuse(k.name, "no CUDA kernel for f64");
  if (k.c.elements() == 0) return;
  const TensorView& from = k.from ? k.from : k.c;
  if (shape.k == 0)
    return k.beta == 0 ? run(stream, kernel::Fill{.tensor = k.c, .value = 0})
                       : run(stream, kernel::Scale{.factor = k.beta, .in = from, .out = k.c});
  const Gemm::Call call = gemm_->prepare(
      stream, {shape, k.type(), k.c.type},
      {static_cast<float>(k.alpha), static_cast<float>(k.beta), k.a.at, k.b.at, k.c.at, from.at});
  cuda_stream(stream).launch(
      call.plan, [&] { return bytes_of_values(call); }, call);
}

std::string CudaKernels::lack_of(const kernel::Gemm& gemm) {
  return gemm_->lack_of({gemm.shape(), gemm.type(), gemm.c.type});
}

CudnnAttention* CudaKernels::cudnn_for(DType type) const {
  return type == DType::bf16 && is_trusted(CudaAttention::cudnn) ? cudnn_.get() : nullptr;
}

CudaAttention CudaKernels::own_attention_by(const char* name, const AttentionShape& shape, DType type) const {
  if (type == DType::bf16 && attention_ != CudaAttention::plain && is_trusted(CudaAttention::tensor_cores) &&
      attention_mma_supports(shape))
    return CudaAttention::tensor_cores;
  expect_head(name, shape);
  return CudaAttention::plain;
}

void CudaKernels::own_forward(Stream& stream, const AttentionLayout& layout,
                              const kernel::AttentionForward& k, const TensorView& kv) const {
  const CudaAttention by = own_attention_by(k.name, k.shape, k.type());
  with_type(k, [&]<typename T>(T) {
    const AttentionForward<T> on{data<T>(k.qkv), data<T>(kv), data<T>(k.out), data<float>(k.log_sum_exp)};
    if constexpr (std::is_same_v<T, __nv_bfloat16>)
      if (by == CudaAttention::tensor_cores) return attention_mma_forward(stream, k.shape, layout, on);
    attention_plain_forward<T>(stream, k.shape, layout, on);
  });
}

void CudaKernels::own_backward(Stream& stream, const AttentionLayout& layout,
                               const kernel::AttentionBackward& k, const TensorView& kv,
                               const TensorView& kv_gradient) {
  const CudaAttention by = own_attention_by(k.name, k.shape, k.type());
  auto* const delta = reinterpret_cast<float*>(scratch(stream, k.log_sum_exp.bytes()));
  with_type(k, [&]<typename T>(T) {
    const AttentionBackward<T> on{data<T>(k.qkv),          data<T>(kv), data<float>(k.log_sum_exp),
                                  data<T>(k.out_gradient), delta,       data<T>(k.qkv_gradient),
                                  data<T>(kv_gradient)};
    attention_delta(stream, k.shape, data<T>(k.out), on.out_gradient, delta);
    if constexpr (std::is_same_v<T, __nv_bfloat16>)
      if (by == CudaAttention::tensor_cores) return attention_mma_backward(stream, k.shape, layout, on);
    attention_plain_backward<T>(stream, k.shape, layout, on);
  });
}

void CudaKernels::run(Stream& stream, const kernel::AttentionForward& k) {
  if (k.kv) return own_forward(stream, layout_of(k.shape, k.block), k, k.kv);
  CudnnAttention* const cudnn = cudnn_for(k.type());
  const auto workspace = cudnn != nullptr ? cudnn->forward_workspace(k.shape) : std::nullopt;
  if (!workspace) return own_forward(stream, layout_of(k.shape), k, k.qkv);
  const size_t bytes = statistics_bytes(k.log_sum_exp);
  std::byte* const memory = scratch(stream, bytes + *workspace);
  auto* const by_head = reinterpret_cast<float*>(memory);
  cudnn->forward(stream, k.shape, data<__nv_bfloat16>(k.qkv), data<__nv_bfloat16>(k.out), by_head,
                 memory + bytes);
  statistics_by_token(stream, k.shape, by_head, data<float>(k.log_sum_exp));
}

void CudaKernels::run(Stream& stream, const kernel::AttentionBackward& k) {
  if (k.kv) return own_backward(stream, layout_of(k.shape, k.block), k, k.kv, k.kv_gradient);
  CudnnAttention* const cudnn = cudnn_for(k.type());
  const auto workspace = cudnn != nullptr ? cudnn->backward_workspace(k.shape) : std::nullopt;
  if (!workspace) return own_backward(stream, layout_of(k.shape), k, k.qkv, k.qkv_gradient);
  const size_t bytes = statistics_bytes(k.log_sum_exp);
  std::byte* const memory = scratch(stream, bytes + *workspace);
  auto* const by_head = reinterpret_cast<float*>(memory);
  statistics_by_head(stream, k.shape, data<float>(k.log_sum_exp), by_head);
  cudnn->backward(stream, k.shape, data<__nv_bfloat16>(k.qkv), data<__nv_bfloat16>(k.out), by_head,
                  data<__nv_bfloat16>(k.out_gradient), data<__nv_bfloat16>(k.qkv_gradient), memory + bytes);
}

}  // namespace stp::cuda
