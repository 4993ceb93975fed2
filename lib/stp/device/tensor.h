// Memory of a device, and matrices in it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace stp {

enum class DType : uint8_t { f32, f64, bf16, i32 };
constexpr size_t bytes_of(DType type) { return type == DType::f64 ? 8 : type == DType::bf16 ? 2 : 4; }
/// What sums over many elements are kept in: statistics of norms and softmax, losses.
constexpr DType statistics_type(DType type) { return type == DType::f64 ? DType::f64 : DType::f32; }
std::string to_string(DType type);

/// What memory is held for. Bytes are counted by kind (memory_ledger.h).
enum class MemoryKind : uint8_t {
  weights,
  gradients,
  optimizer,
  saved,          // kept by a forward (or by I) for a later pass: "activations" in results
  working,        // made and used up by ops that follow each other
  communication,  // received and not yet taken up
  data,           // tokens, targets, losses
};
inline constexpr int kMemoryKinds = 7;
std::string to_string(MemoryKind kind);

/// One allocation. A backend derives its own; `bytes` and `kind` are changed by its Device alone.
struct Memory {
  virtual ~Memory() = default;
  size_t bytes = 0;
  MemoryKind kind = MemoryKind::working;
};

/// A dense row-major matrix that is a whole allocation. Copies share the memory; it is given back by
/// Device::release, in stream order, not by the last copy.
struct Tensor {
  std::shared_ptr<Memory> memory;
  int64_t rows = 0, columns = 0;
  DType type = DType::f32;

  explicit operator bool() const { return memory != nullptr; }
  [[nodiscard]] int64_t elements() const { return rows * columns; }
  [[nodiscard]] size_t bytes() const { return static_cast<size_t>(elements()) * bytes_of(type); }
};

}  // namespace stp
