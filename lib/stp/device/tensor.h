// Memory of a device, and matrices in it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace stp {

class Bfloat16;

enum class DType : uint8_t { f32, f64, bf16, i32 };
constexpr size_t bytes_of(DType type) { return type == DType::f64 ? 8 : type == DType::bf16 ? 2 : 4; }
/// The type of sums over many elements: statistics of norms and softmax, losses.
constexpr DType statistics_type(DType type) { return type == DType::f64 ? DType::f64 : DType::f32; }
std::string to_string(DType type);

/// The use of memory. Bytes are counted by kind (memory_tracker.h).
enum class MemoryKind : uint8_t {
  weights,
  gradients,
  optimizer,
  saved,          // kept by a forward (or by I) for a later pass: "activations" in results
  working,        // made and consumed by consecutive ops
  communication,  // received and not yet consumed
  data,           // tokens, targets, losses
  host,           // offloaded: memory of the host, not of the device
};
inline constexpr int kMemoryKinds = 8;
std::string to_string(MemoryKind kind);

/// One allocation. The host knows its address as soon as Device::allocate() returns. Only stream work ordered
/// between allocation and release may use the contents.
struct Memory {
  std::byte* at = nullptr;
  size_t bytes = 0;
  MemoryKind kind = MemoryKind::working;
  bool held = false;  // between allocation and release, in the order of the host's calls
};

/// A dense row-major matrix: an allocation, or a part of one. Copies share the memory. Device::release frees
/// it in stream order; destructors do not.
struct Tensor {
  std::shared_ptr<Memory> memory;
  int64_t rows = 0, columns = 0;
  DType type = DType::f32;
  size_t offset = 0;  // of the first element, in bytes

  explicit operator bool() const { return memory != nullptr; }
  [[nodiscard]] int64_t elements() const { return rows * columns; }
  [[nodiscard]] size_t bytes() const { return static_cast<size_t>(elements()) * bytes_of(type); }
  /// The elements from `first` on, as a matrix. Only the whole tensor can be released.
  [[nodiscard]] Tensor part(int64_t first, int64_t part_rows, int64_t part_columns) const;
};

/// A tensor as a kernel gets it: the address of its elements at the call. It does not keep the memory alive.
/// Work given to a stream before the tensor's release may use it.
struct TensorView {
  std::byte* at = nullptr;  // null if the tensor is empty, or has no elements
  int64_t rows = 0, columns = 0;
  DType type = DType::f32;
  bool empty = true, held = false;  // empty: no tensor; held: memory not released

  TensorView() = default;
  // NOLINTNEXTLINE(google-explicit-constructor): wherever elements are meant, a tensor stands for its own
  TensorView(const Tensor& tensor)
      : at(tensor ? tensor.memory->at + tensor.offset : nullptr),
        rows(tensor.rows),
        columns(tensor.columns),
        type(tensor.type),
        empty(!tensor),
        held(tensor && tensor.memory->held) {}

  explicit operator bool() const { return !empty; }
  [[nodiscard]] int64_t elements() const { return rows * columns; }
  [[nodiscard]] size_t bytes() const { return static_cast<size_t>(elements()) * bytes_of(type); }
};

/// The DType of T; backends add their own bf16 types.
template <typename T>
inline constexpr DType kTypeOf = T::has_no_type;  // specialised below
template <>
inline constexpr DType kTypeOf<float> = DType::f32;
template <>
inline constexpr DType kTypeOf<double> = DType::f64;
template <>
inline constexpr DType kTypeOf<Bfloat16> = DType::bf16;
template <>
inline constexpr DType kTypeOf<int32_t> = DType::i32;

/// Address of the elements; null if the tensor is empty. data<T>() throws std::logic_error if the tensor has
/// another type than T (std::byte fits all).
inline std::byte* address(const TensorView& tensor) { return tensor.at; }
[[noreturn]] void throw_wrong_type(DType is, DType asked);
template <typename T>
T* data(const TensorView& tensor) {
  if (tensor && tensor.type != kTypeOf<T>) throw_wrong_type(tensor.type, kTypeOf<T>);
  return reinterpret_cast<T*>(tensor.at);
}
template <>
inline std::byte* data<std::byte>(const TensorView& tensor) {
  return tensor.at;
}

}  // namespace stp
