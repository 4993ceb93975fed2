#include "stp/device/tensor.h"

#include <array>
#include <stdexcept>

namespace stp {

std::string to_string(DType type) {
  static constexpr std::array names{"f32", "f64", "bf16", "i32"};
  return names[static_cast<size_t>(type)];
}

std::string to_string(MemoryKind kind) {
  static constexpr std::array names{"weights", "gradients",     "optimizer", "saved",
                                    "working", "communication", "data"};
  static_assert(names.size() == kMemoryKinds);
  return names[static_cast<size_t>(kind)];
}

std::byte* address(const Tensor& tensor) { return tensor ? tensor.memory->at : nullptr; }

void throw_wrong_type(DType is, DType asked) {
  throw std::logic_error("the tensor is of " + to_string(is) + ", not " + to_string(asked));
}

}  // namespace stp
