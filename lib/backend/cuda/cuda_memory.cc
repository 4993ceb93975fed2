#include "stp/cuda/cuda_memory.h"

#include <stdexcept>

namespace stp {

CudaMemory& cuda_memory(const Tensor& tensor) {
  auto* memory = dynamic_cast<CudaMemory*>(tensor.memory.get());
  if (memory == nullptr) throw std::logic_error("the tensor is empty, or of another backend");
  return *memory;
}

namespace cuda {
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
  void* at = cuda_memory(tensor).at;
  if (at == nullptr)
    throw std::logic_error("the memory of a tensor is used before its allocation or after its release");
  return static_cast<std::byte*>(at);
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

}  // namespace cuda
}  // namespace stp
