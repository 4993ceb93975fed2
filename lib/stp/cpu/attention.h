// Grouped-query attention in blocks of queries and keys, with a running softmax: causal, without mask, or as
// steps of a ring.
#pragma once

#include "stp/cpu/blas.h"
#include "stp/device/kernel_arguments.h"

namespace stp::cpu {

// T is float or double; bf16 tensors are float here (operand.h).
template <typename T>
void compute(const kernel::AttentionForward& k, BlasCounter& counter);
template <typename T>
void compute(const kernel::AttentionBackward& k, BlasCounter& counter);
template <typename T>
void compute(const kernel::AttentionMergeForward& k, BlasCounter& counter);
template <typename T>
void compute(const kernel::AttentionMergeBackward& k, BlasCounter& counter);

}  // namespace stp::cpu
