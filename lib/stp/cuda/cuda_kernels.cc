#include "stp/cuda/cuda_kernels.h"

#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "stp/cuda/cuda_check.h"
#include "stp/cuda/cuda_memory.h"
#include "stp/cuda/cuda_stream.h"
#include "stp/cuda/cudnn_attention.h"
#include "stp/cuda/launch.h"
#include "stp/cuda/stream_kernels.h"
#include "stp/device/kernel_checks.h"

// What calls are given goes by one name, at the call and where it is issued.
#pragma GCC diagnostic ignored "-Wshadow"

namespace stp::cuda {
namespace {

class CudaKernels : public StreamKernels {
 public:
  CudaKernels(CudaRun& run, const ScratchMemory& scratch, const CudaKernelOptions& options)
      : StreamKernels(run, scratch), options_(options), gemm_(options.gemm, scratch) {
    if (options.attention == CudaAttention::cudnn) cudnn_ = make_cudnn_attention();
  }

  void attention_forward(Stream& stream, const AttentionShape& shape, const Tensor& qkv, const Tensor& out,
                         const Tensor& log_sum_exp) override {
    check::attention_forward(shape, qkv, out, log_sum_exp);
    if (!by_cudnn(stream, shape, qkv.type))
      return LaunchedKernels::attention_forward(stream, shape, qkv, out, log_sum_exp);
    enqueue_call("cudnn_forward", stream, std::tuple(shape, qkv, out, log_sum_exp),
                 [this](cudaStream_t s, auto& shape, auto& qkv, auto& out, auto& log_sum_exp) {
                   with_statistics_by_head(
                       s, log_sum_exp, cudnn_->forward_workspace(shape),
                       [&](float* by_head, void* workspace) {
                         cudnn_->forward(s, shape, at<bf16>(qkv), at<bf16>(out), by_head, workspace);
                         launch::statistics_by_token(s, shape, by_head, at<float>(log_sum_exp));
                       });
                 });
  }

  void attention_backward(Stream& stream, const AttentionShape& shape, const Tensor& qkv, const Tensor& out,
                          const Tensor& log_sum_exp, const Tensor& out_gradient,
                          const Tensor& qkv_gradient) override {
    check::attention_backward(shape, qkv, out, log_sum_exp, out_gradient, qkv_gradient);
    if (!by_cudnn(stream, shape, qkv.type))
      return LaunchedKernels::attention_backward(stream, shape, qkv, out, log_sum_exp, out_gradient,
                                                 qkv_gradient);
    enqueue_call(
        "cudnn_backward", stream, std::tuple(shape, qkv, out, log_sum_exp, out_gradient, qkv_gradient),
        [this](cudaStream_t s, auto& shape, auto& qkv, auto& out, auto& log_sum_exp, auto& out_gradient,
               auto& qkv_gradient) {
          with_statistics_by_head(
              s, log_sum_exp, cudnn_->backward_workspace(shape), [&](float* by_head, void* workspace) {
                launch::statistics_by_head(s, shape, at<float>(log_sum_exp), by_head);
                cudnn_->backward(s, shape, at<bf16>(qkv), at<bf16>(out), by_head, at<bf16>(out_gradient),
                                 at<bf16>(qkv_gradient), workspace);
              });
        });
  }

 protected:
  void multiply(cudaStream_t stream, const Product& product) override {
    gemm_.multiply(stream,
                   {product.transpose_a, product.transpose_b, product.m, product.n, product.k, product.type,
                    product.c_type},
                   product.alpha, product.a, product.b, product.beta, product.c);
  }

  [[nodiscard]] bool on_tensor_cores(const AttentionShape& shape, DType type) const override {
    return options_.attention != CudaAttention::plain && LaunchedKernels::on_tensor_cores(shape, type);
  }

 private:
  using bf16 = launch::bf16;

  bool by_cudnn(Stream& stream, const AttentionShape& shape, DType type) {
    if (!cudnn_ || type != DType::bf16) return false;
    cuda_stream(stream).run().make_current();  // a host thread's first work may be this
    return cudnn_->supports(shape);
  }

  // cuDNN keeps the statistics of a head together; `work` is given memory for those, and its workspace.
  void with_statistics_by_head(cudaStream_t stream, const Tensor& log_sum_exp, size_t workspace_bytes,
                               const std::function<void(float*, void*)>& work) {
    scratch_.with(stream, log_sum_exp.bytes(), [&](void* by_head) {
      scratch_.with(stream, workspace_bytes,
                    [&](void* workspace) { work(static_cast<float*>(by_head), workspace); });
    });
  }

  const CudaKernelOptions options_;
  Gemm gemm_;
  std::unique_ptr<CudnnAttention> cudnn_;  // null: not built, or not wanted
};

}  // namespace

std::unique_ptr<Kernels> make_cuda_kernels(CudaRun& run, const ScratchMemory& scratch,
                                           const CudaKernelOptions& options) {
  return std::make_unique<CudaKernels>(run, scratch, options);
}

}  // namespace stp::cuda
