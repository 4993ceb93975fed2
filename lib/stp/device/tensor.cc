#include "stp/device/tensor.h"

#include <array>

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

}  // namespace stp
