// An allocation of the CPU backend, and the typed way into it.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <type_traits>

#include "stp/device/bfloat16.h"
#include "stp/device/tensor.h"

namespace stp::cpu {

struct FreeBlock {
  void operator()(void* block) const { std::free(block); }
};
/// Memory aligned to 64 bytes.
using CpuBlock = std::unique_ptr<void, FreeBlock>;

/// `block` is there from where the stream passes the tensor's allocation to where one passes its release:
/// only tasks of streams that are ordered between the two may look at it. So may a host thread that
/// synchronised.
struct CpuMemory : Memory {
  CpuBlock block;
};

/// Where the elements of `tensor` are, aligned to 64 bytes; for tasks of streams. Throws std::logic_error if
/// the tensor is empty, of another type than T (float, double, Bfloat16, int32_t; std::byte goes with all),
/// not yet allocated or already released.
template <typename T>
T* data(const Tensor& tensor);

/// The same for any type.
void* untyped_data(const Tensor& tensor);
[[noreturn]] void throw_wrong_type(DType is, DType asked);

template <typename T>
inline constexpr DType kTypeOf = T::none;  // specialised below
template <>
inline constexpr DType kTypeOf<float> = DType::f32;
template <>
inline constexpr DType kTypeOf<double> = DType::f64;
template <>
inline constexpr DType kTypeOf<Bfloat16> = DType::bf16;
template <>
inline constexpr DType kTypeOf<int32_t> = DType::i32;

template <typename T>
T* data(const Tensor& tensor) {
  void* at = untyped_data(tensor);
  if constexpr (!std::is_same_v<T, std::byte>) {
    if (tensor.type != kTypeOf<T>) throw_wrong_type(tensor.type, kTypeOf<T>);
  }
  return static_cast<T*>(at);
}

}  // namespace stp::cpu
