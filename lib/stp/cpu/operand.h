// Tensors in the types that kernels compute with. The CPU has no bf16 arithmetic: the kernel works on a float
// copy, which is rounded at its end. This is correct, but not fast.
#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "stp/device/bfloat16.h"
#include "stp/device/tensor.h"

namespace stp::cpu {

template <typename T>
void round(int64_t count, const T* from, Bfloat16* to) {
  for (int64_t i = 0; i < count; ++i) to[i] = Bfloat16(static_cast<float>(from[i]));
}

enum class Access { in, in_if_any, out, out_if_any, in_out };

/// The elements of a tensor of type T or bf16; converts to a pointer. Null if the tensor is empty and may be
/// empty. Lives as long as the kernel's call.
template <typename T, Access access>
class Operand {
  static constexpr bool kConst = access == Access::in || access == Access::in_if_any;

 public:
  explicit Operand(const TensorView& tensor) : tensor_(tensor) {
    if ((access == Access::in_if_any || access == Access::out_if_any) && !tensor) return;
    if (tensor.type != DType::bf16) {
      elements_ = data<T>(tensor);
      return;
    }
    const Bfloat16* narrow = data<Bfloat16>(tensor);
    if constexpr (access == Access::out || access == Access::out_if_any)
      wide_.assign(tensor.elements(), static_cast<T>(NAN));  // as fresh memory may be
    else
      wide_.assign(narrow, narrow + tensor.elements());
    elements_ = wide_.data();
  }
  Operand(const Operand&) = delete;
  Operand& operator=(const Operand&) = delete;
  ~Operand() {
    if (kConst || wide_.empty()) return;
    round(tensor_.elements(), wide_.data(), data<Bfloat16>(tensor_));
  }

  using Pointer = std::conditional_t<kConst, const T*, T*>;
  operator Pointer() const { return elements_; }

 private:
  const TensorView& tensor_;
  std::vector<T> wide_;  // for bf16
  T* elements_ = nullptr;
};

template <typename T>
using In = Operand<T, Access::in>;
template <typename T>
using InIfAny = Operand<T, Access::in_if_any>;
template <typename T>
using Out = Operand<T, Access::out>;
template <typename T>
using OutIfAny = Operand<T, Access::out_if_any>;
template <typename T>
using InOut = Operand<T, Access::in_out>;

}  // namespace stp::cpu
