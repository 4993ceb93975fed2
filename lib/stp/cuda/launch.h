// The kernels as plain functions: pointers into device memory, sizes, and the stream that they are launched
// on. They check nothing but the launch itself (CudaError); shapes are checked where tensors are known
// (launched_kernels.h). T is float or __nv_bfloat16; all arithmetic is in float32. Matrices are row-major and
// dense, their first element aligned to 16 bytes. Results are the same bits in every run on the same kind of
// device: no sum is made by atomics.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "stp/device/kernels.h"

namespace stp::cuda::launch {

using bf16 = __nv_bfloat16;

/// Repeats the `size` bytes (a power of two, at most 16) at `element`, which lies on the host, over `bytes`
/// bytes.
void fill(cudaStream_t stream, void* to, size_t bytes, const void* element, size_t size);
/// out = factor · in; the two may be one.
template <typename T>
void scale(cudaStream_t stream, int64_t count, double factor, const T* in, T* out);
/// Writes `mark` to *flag, which may be mapped memory of the host, if an element is not finite. T may be
/// double.
template <typename T>
void check_finite(cudaStream_t stream, int64_t count, const T* values, int32_t mark, int32_t* flag);

/// `columns` at most kMaxColumns here and in all functions on rows.
inline constexpr int64_t kMaxColumns = INT32_MAX / 2;
template <typename T>
void rms_norm_forward(cudaStream_t stream, int64_t rows, int64_t columns, const T* x, const T* gain,
                      double epsilon, T* y, float* rstd);
/// dx may be dy; `residual` may be null. `scratch`: rms_norm_backward_scratch(rows, columns) bytes.
size_t rms_norm_backward_scratch(int64_t rows, int64_t columns);
template <typename T>
void rms_norm_backward(cudaStream_t stream, int64_t rows, int64_t columns, const T* dy, const T* x,
                       const T* gain, const float* rstd, double residual_factor, const T* residual, T* dx,
                       float* gain_gradient, void* scratch);
/// sums += Σ_rows in
size_t add_column_sums_scratch(int64_t rows, int64_t columns);
template <typename T>
void add_column_sums(cudaStream_t stream, int64_t rows, int64_t columns, const T* in, float* sums,
                     void* scratch);

/// Heads of up to this many elements.
inline constexpr int kMaxHeadDim = 256;
/// Adds `bias` (one row; may be null) to qkv and rotates q and k by `direction` (1 or −1) times their angles.
template <typename T>
void rotate(cudaStream_t stream, const AttentionShape& shape, double theta, int direction, const T* bias,
            T* qkv);

template <typename T>
void swiglu_forward(cudaStream_t stream, int64_t rows, int64_t columns, const T* gate_up, T* out);
template <typename T>
void swiglu_backward(cudaStream_t stream, int64_t rows, int64_t columns, const T* gate_up, const T* gradient,
                     T* gate_up_gradient);

/// This rank holds the rows [first, first + entries) of the table.
template <typename T>
void embedding_forward(cudaStream_t stream, int64_t rows, int64_t columns, const int32_t* tokens,
                       const T* table, int64_t first, int64_t entries, T* out);
template <typename T>
void embedding_backward(cudaStream_t stream, int64_t rows, int64_t columns, const int32_t* tokens,
                        const T* gradient, int64_t first, int64_t entries, float* table_gradient);

template <typename T>
void row_maximum(cudaStream_t stream, int64_t rows, int64_t columns, const T* logits, float* maximum);
template <typename T>
void exponential_sums(cudaStream_t stream, int64_t rows, int64_t columns, const T* logits,
                      const float* maximum, const int32_t* targets, int64_t first, float* sums);
template <typename T>
void cross_entropy(cudaStream_t stream, int64_t rows, int64_t columns, const float* maximum,
                   const float* sums, const int32_t* targets, int64_t first, double factor, T* logits,
                   float* loss);

/// total += factor · Σ x². `scratch`: kSumOfSquaresScratch bytes.
inline constexpr int kMaxPartialSums = 1024;
inline constexpr size_t kSumOfSquaresScratch = kMaxPartialSums * sizeof(double);
template <typename T>
void add_sum_of_squares(cudaStream_t stream, int64_t count, double factor, const T* x, double* total,
                        void* scratch);
/// `total` may be null. `weight` may be null: the master is the weight then.
template <typename T>
void adamw(cudaStream_t stream, int64_t count, const AdamW& options, double max_norm, const double* total,
           const float* gradient, float* first_moment, float* second_moment, float* master, T* weight);

/// delta[token, head] = Σ out · out_gradient over the head: what both attention backwards begin with.
template <typename T>
void attention_delta(cudaStream_t stream, const AttentionShape& shape, const T* out, const T* out_gradient,
                     float* delta);

// Attention in float32 on the CUDA cores: any head of up to kMaxHeadDim elements.
template <typename T>
void attention_forward(cudaStream_t stream, const AttentionShape& shape, const T* qkv, T* out,
                       float* log_sum_exp);
template <typename T>
void attention_backward(cudaStream_t stream, const AttentionShape& shape, const T* qkv,
                        const float* log_sum_exp, const T* out_gradient, const float* delta, T* qkv_gradient);

// Attention on the tensor cores.
bool attention_mma_supports(const AttentionShape& shape);
void attention_mma_forward(cudaStream_t stream, const AttentionShape& shape, const bf16* qkv, bf16* out,
                           float* log_sum_exp);
void attention_mma_backward(cudaStream_t stream, const AttentionShape& shape, const bf16* qkv,
                            const float* log_sum_exp, const bf16* out_gradient, const float* delta,
                            bf16* qkv_gradient);

/// The statistics of T × heads as batch × heads × seq, and back.
void statistics_by_head(cudaStream_t stream, const AttentionShape& shape, const float* by_token,
                        float* by_head);
void statistics_by_token(cudaStream_t stream, const AttentionShape& shape, const float* by_head,
                         float* by_token);

}  // namespace stp::cuda::launch
