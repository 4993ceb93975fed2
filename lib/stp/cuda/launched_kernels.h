// stp::Kernels by the launches of launch.h: shapes and types are checked at the call, pointers and scratch
// memory are taken where the work is issued. What is left to those who derive: streams, memory, and matrix
// products. The CUDA backend is one of them (cuda_kernels.cc); tests that run the kernels on the host are the
// other.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <utility>

#include "stp/cuda/repeatable_call.h"
#include "stp/cuda/scratch_memory.h"
#include "stp/device/kernels.h"

namespace stp::cuda {

/// Types: X is f32 or bf16. f64 is refused (std::logic_error) but by fill, copy and check_finite.
class LaunchedKernels : public Kernels {
 public:
  explicit LaunchedKernels(ScratchMemory scratch) : scratch_(std::move(scratch)) {}

  void fill(Stream& stream, const Tensor& tensor, double value) override;
  void copy(Stream& stream, const Tensor& from, const Tensor& to) override;
  void scale(Stream& stream, double factor, const Tensor& in, const Tensor& out) override;
  void check_finite(Stream& stream, const Tensor& tensor, const std::string& what) override;
  void gemm(Stream& stream, bool transpose_a, bool transpose_b, double alpha, const Tensor& a,
            const Tensor& b, double beta, const Tensor& c) override;
  void rms_norm_forward(Stream& stream, const Tensor& x, const Tensor& gain, double epsilon, const Tensor& y,
                        const Tensor& rstd) override;
  void rms_norm_backward(Stream& stream, const Tensor& dy, const Tensor& x, const Tensor& gain,
                         const Tensor& rstd, double residual_factor, const Tensor& residual, const Tensor& dx,
                         const Tensor& gain_gradient) override;
  void bias_rope_forward(Stream& stream, const AttentionShape& shape, double theta, const Tensor& bias,
                         const Tensor& qkv) override;
  void rope_backward(Stream& stream, const AttentionShape& shape, double theta,
                     const Tensor& qkv_gradient) override;
  void add_column_sums(Stream& stream, const Tensor& gradient, const Tensor& bias_gradient) override;
  void attention_forward(Stream& stream, const AttentionShape& shape, const Tensor& qkv, const Tensor& out,
                         const Tensor& log_sum_exp) override;
  void attention_backward(Stream& stream, const AttentionShape& shape, const Tensor& qkv, const Tensor& out,
                          const Tensor& log_sum_exp, const Tensor& out_gradient,
                          const Tensor& qkv_gradient) override;
  void swiglu_forward(Stream& stream, const Tensor& gate_up, const Tensor& out) override;
  void swiglu_backward(Stream& stream, const Tensor& gate_up, const Tensor& out_gradient,
                       const Tensor& gate_up_gradient) override;
  void embedding_forward(Stream& stream, const Tensor& tokens, const Tensor& table, int64_t first,
                         const Tensor& out) override;
  void embedding_backward(Stream& stream, const Tensor& tokens, const Tensor& out_gradient, int64_t first,
                          const Tensor& table_gradient) override;
  void row_maximum(Stream& stream, const Tensor& logits, const Tensor& maximum) override;
  void exponential_sums(Stream& stream, const Tensor& logits, const Tensor& maximum, const Tensor& targets,
                        int64_t first, const Tensor& sums) override;
  void cross_entropy(Stream& stream, const Tensor& maximum, const Tensor& sums, const Tensor& targets,
                     int64_t first, double factor, const Tensor& logits, const Tensor& loss) override;
  void add_sum_of_squares(Stream& stream, double factor, const Tensor& x, const Tensor& total) override;
  void adamw(Stream& stream, const AdamW& options, double max_norm, const Tensor& total,
             const Tensor& gradient, const Tensor& first_moment, const Tensor& second_moment,
             const Tensor& master, const Tensor& weight) override;

 protected:
  /// One product, where pointers are known; none of its sizes is 0. Row-major and dense.
  struct Product {
    bool transpose_a, transpose_b;
    int64_t m, n, k;
    double alpha, beta;
    const void *a, *b;
    void* c;
    DType type, c_type;  // of a and b; of c
  };

  /// Has `call` issued, or `work` called, where `stream` comes to it.
  virtual void enqueue(Stream& stream, std::unique_ptr<RepeatableCall> call) = 0;
  virtual void enqueue(Stream& stream, std::function<void(cudaStream_t)> work) = 0;
  /// Throws std::logic_error if the tensor, which is not empty, is already released.
  virtual void expect_held(const Tensor& tensor) = 0;
  /// Where the elements of a tensor that is not empty are; only within work.
  virtual void* address(const Tensor& tensor) = 0;
  virtual void copy_bytes(cudaStream_t stream, const void* from, void* to, size_t bytes) = 0;
  virtual void multiply(cudaStream_t stream, const Product& product) = 0;
  /// Enqueues `launch` with the address of a flag that is 0, and fails the run, naming `what`, if it is not 0
  /// after the launch.
  virtual void enqueue_check(Stream& stream, const std::string& what,
                             std::function<void(cudaStream_t, int32_t* flag)> launch) = 0;

  /// Whether the attention of this shape and type goes to the tensor cores' kernels. The others take heads of
  /// up to launch::kMaxHeadDim elements.
  [[nodiscard]] virtual bool on_tensor_cores(const AttentionShape& shape, DType type) const;

  /// As address(); null if the tensor is empty or has no elements.
  template <typename T>
  T* at(const Tensor& tensor) {
    return tensor && tensor.elements() > 0 ? static_cast<T*>(address(tensor)) : nullptr;
  }
  /// Enqueues work(stream, values…), which does nothing but what follows from those, from `kernel`, and from
  /// what never changes.
  template <typename Work, typename... Values>
  void enqueue_call(const char* kernel, Stream& stream, std::tuple<Values...> values, Work work) {
    const auto expect = [&](const auto& value) {
      if constexpr (std::is_same_v<std::decay_t<decltype(value)>, Tensor>)
        if (value) expect_held(value);
    };
    std::apply([&](const Values&... each) { (expect(each), ...); }, values);
    enqueue(stream, std::make_unique<CallOf<Work, Values...>>(kernel, std::move(values), std::move(work)));
  }
  const ScratchMemory scratch_;

 private:
  template <typename Work, typename... Values>
  void enqueue_typed(const char* kernel, Stream& stream, DType type, std::tuple<Values...> values, Work work);
};

}  // namespace stp::cuda
