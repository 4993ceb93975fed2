// From a type that is known at run time to one that code is compiled for.
#pragma once

#include <stdexcept>
#include <string>

#include "stp/device/tensor.h"

namespace stp {

/// Calls work(T{}), T being the type of elements that `type` names: float, double, or Bf16, which each
/// backend has its own of. std::logic_error, naming `what`, for others.
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
