// Grouped-query attention in blocks of queries and keys, with a running softmax: causal, without mask, or the
// steps of a ring.
#pragma once

#include "stp/cpu/blas.h"
#include "stp/device/kernels.h"

namespace stp::cpu {

/// As those of Kernels, on raw pointers; T is float or double.
template <typename T>
void attention_forward(BlasCounter& counter, const AttentionShape& shape, const T* qkv, T* out,
                       T* log_sum_exp);
template <typename T>
void attention_backward(BlasCounter& counter, const AttentionShape& shape, const T* qkv, const T* out,
                        const T* log_sum_exp, const T* out_gradient, T* qkv_gradient);

template <typename T>
void attention_merge_forward(BlasCounter& counter, const AttentionShape& shape, const AttentionBlock& block,
                             const T* qkv, const T* kv, T* out, T* log_sum_exp);
template <typename T>
void attention_merge_backward(BlasCounter& counter, const AttentionShape& shape, const AttentionBlock& block,
                              const T* qkv, const T* kv, const T* out, const T* log_sum_exp,
                              const T* out_gradient, T* qkv_gradient, T* kv_gradient);

}  // namespace stp::cpu
