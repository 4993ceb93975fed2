// An allocation of the CUDA backend, and the typed way into it.
#pragma once

#include <cuda_bf16.h>

#include <cstddef>
#include <cstdint>

#include "stp/backend/tensor.h"

namespace stp {

/// `at` is set where the allocation is issued and cleared where the release is: only work that streams issue
/// between the two may look at it, and hosts that synchronised.
struct CudaMemory : Memory {
  void* at = nullptr;
  bool counted = false;  // the rank's host's: by its ledger
};

// In a namespace of its own: the CPU backend has functions of the same names, and one program may hold both.
namespace cuda {

/// Where on the device the elements of `tensor` are, aligned to 256 bytes; for closures of CudaStream. Throws
/// std::logic_error if the tensor is empty, of another backend or of another type than T (float, double,
/// __nv_bfloat16, int32_t; std::byte goes with all), not yet allocated or already released.
template <typename T>
T* data(const Tensor& tensor);
template <>
std::byte* data(const Tensor& tensor);
template <>
float* data(const Tensor& tensor);
template <>
double* data(const Tensor& tensor);
template <>
__nv_bfloat16* data(const Tensor& tensor);
template <>
int32_t* data(const Tensor& tensor);

}  // namespace cuda
using cuda::data;

/// Throws std::logic_error if `tensor` is empty or of another backend.
CudaMemory& cuda_memory(const Tensor& tensor);

}  // namespace stp
