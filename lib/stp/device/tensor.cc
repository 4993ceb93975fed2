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
                                    "working", "communication", "data",      "host"};
  static_assert(names.size() == kMemoryKinds);
  return names[static_cast<size_t>(kind)];
}

Tensor Tensor::part(int64_t first, int64_t part_rows, int64_t part_columns) const {
  if (first < 0 || part_rows < 0 || part_columns < 0 || first + part_rows * part_columns > elements())
    throw std::logic_error("a part of a tensor is not inside it");
  return {memory, part_rows, part_columns, type, offset + static_cast<size_t>(first) * bytes_of(type)};
}

void throw_wrong_type(DType is, DType asked) {
  throw std::logic_error("the tensor is of " + to_string(is) + ", not " + to_string(asked));
}

}  // namespace stp
