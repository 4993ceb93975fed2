#include "stp/cpu/cpu_memory.h"

#include <stdexcept>

namespace stp::cpu {

void* untyped_data(const Tensor& tensor) {
  if (!tensor) throw std::logic_error("an empty tensor has no data");
  const auto* memory = dynamic_cast<const CpuMemory*>(tensor.memory.get());
  if (memory == nullptr) throw std::logic_error("the tensor is of another backend");
  if (!memory->block)
    throw std::logic_error("the memory of a tensor is used before its allocation or after its release");
  return memory->block.get();
}

void throw_wrong_type(DType is, DType asked) {
  throw std::logic_error("the tensor is of " + to_string(is) + ", not " + to_string(asked));
}

}  // namespace stp::cpu
