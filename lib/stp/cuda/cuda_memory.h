// An allocation of the CUDA backend, and the typed way into it.
#pragma once

#include <cuda_bf16.h>

#include <cstddef>
#include <cstdint>

#include "stp/cuda/memory_slots.h"
#include "stp/device/tensor.h"

namespace stp::cuda {

/// What fills memory that is poisoned: a quiet NaN in every floating-point type.
inline constexpr int kPoison = 0xFF;

/// `slot` has its address when the allocation is issued: work that streams issue from then on may look at it,
/// and hosts that synchronised. It is others' memory after the release, in the order of the streams.
struct CudaMemory : Memory {
  SlotRef slot;
  bool held = false;  // the rank's host's: allocated, and not released
};

/// Where on the device the elements of `tensor` are, aligned to 256 bytes; for closures of CudaStream. Throws
/// std::logic_error if the tensor is empty, of another backend or of another type than T (float, double,
/// __nv_bfloat16, int32_t; std::byte goes with all), or not yet allocated.
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

/// Throws std::logic_error if `tensor` is empty or of another backend.
CudaMemory& cuda_memory(const Tensor& tensor);
/// The same for the rank's host, and if it is already released.
CudaMemory& held_memory(const Tensor& tensor);

}  // namespace stp::cuda
