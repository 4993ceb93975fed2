#include "stp/cuda/cuda_memory.h"

#include <stdexcept>

namespace stp::cuda {

CudaMemory& cuda_memory(const Tensor& tensor) {
  auto* memory = dynamic_cast<CudaMemory*>(tensor.memory.get());
  if (memory == nullptr) throw std::logic_error("the tensor is empty, or of another backend");
  return *memory;
}

CudaMemory& held_memory(const Tensor& tensor) {
  CudaMemory& memory = cuda_memory(tensor);
  if (!memory.held) throw std::logic_error("the memory of a tensor is used after its release");
  return memory;
}

namespace {

template <typename T>
T* typed(const Tensor& tensor, DType type) {
  T* at = reinterpret_cast<T*>(data<std::byte>(tensor));
  if (tensor.type != type)
    throw std::logic_error("the tensor is of " + to_string(tensor.type) + ", not " + to_string(type));
  return at;
}

}  // namespace

template <>
std::byte* data(const Tensor& tensor) {
  const SlotRef& slot = cuda_memory(tensor).slot;
  if (!slot || slot->at == nullptr)
    throw std::logic_error("the memory of a tensor is used before its allocation");
  return static_cast<std::byte*>(slot->at);
}

template <>
float* data(const Tensor& tensor) {
  return typed<float>(tensor, DType::f32);
}

template <>
double* data(const Tensor& tensor) {
  return typed<double>(tensor, DType::f64);
}

template <>
__nv_bfloat16* data(const Tensor& tensor) {
  return typed<__nv_bfloat16>(tensor, DType::bf16);
}

template <>
int32_t* data(const Tensor& tensor) {
  return typed<int32_t>(tensor, DType::i32);
}

}  // namespace stp::cuda
