// Turns a type known at run time into a type known at compile time.
#pragma once

#include <stdexcept>
#include <string>

#include "stp/device/tensor.h"

namespace stp {

/// Calls work(T{}) with the element type T of `type`: float, double, or the backend's type Bf16. Throws
/// std::logic_error that names `what` for other types.
template <typename Bf16, typename Work>
auto with_element(DType type, const char* what, Work work) {
  switch (type) {
    case DType::f32:
      return work(float{});
    case DType::f64:
      return work(double{});
    case DType::bf16:
      return work(Bf16{});
    case DType::i32:
      break;
  }
  throw std::logic_error(std::string(what) + " of " + to_string(type));
}

}  // namespace stp
