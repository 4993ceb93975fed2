#include "stp/device/device.h"

#include <algorithm>
#include <stdexcept>

#include "stp/device/bfloat16.h"
#include "stp/device/element_type.h"

namespace stp {

Device::Device(size_t memory_limit, bool poison)
    : poison_(poison),
      tracker_(memory_limit),
      blocks_([this](size_t bytes) { return take_memory(bytes); },
              [this](std::byte* at) { free_memory(at); }),
      host_blocks_([this](size_t bytes) { return take_host_memory(bytes); },
                   [this](std::byte* at) { free_host_memory(at); }) {}

Tensor Device::allocate(Stream& stream, MemoryKind kind, DType type, int64_t rows, int64_t columns) {
  if (rows < 0 || columns < 0) throw std::logic_error("a tensor of negative size");
  const auto memory = std::make_shared<Memory>();
  Tensor tensor{memory, rows, columns, type};
  memory->bytes = tensor.bytes();
  memory->kind = kind;
  tracker_.allocate(kind, memory->bytes);
  try {
    memory->at = blocks_of(kind).allocate(stream, memory->bytes);
  } catch (...) {
    tracker_.release(kind, memory->bytes);
    throw;
  }
  memory->held = true;
  if (poison_) fill_with_nan(stream, memory->at, memory->bytes);
  return tensor;
}

void Device::retag(const Tensor& tensor, MemoryKind kind) {
  check_holds(tensor, 0);
  Memory& memory = *tensor.memory;
  tracker_.retag(memory.kind, kind, memory.bytes);
  memory.kind = kind;
}

void Device::release(Stream& stream, Tensor& tensor) {
  check_holds(tensor, 0);
  Memory& memory = *tensor.memory;
  if (tensor.offset != 0 || tensor.bytes() != memory.bytes)
    throw std::logic_error("a part of a tensor is released");
  tracker_.release(memory.kind, memory.bytes);
  memory.held = false;
  if (poison_) fill_with_nan(stream, memory.at, memory.bytes);
  blocks_of(memory.kind).release(stream, memory.at, memory.bytes);
  tensor = {};
}

void check_holds(const Tensor& tensor, size_t bytes) {
  if (!tensor) throw std::logic_error("an empty tensor has no memory");
  if (!tensor.memory->held) throw std::logic_error("the memory of a tensor is used after its release");
  if (const size_t held = tensor.memory->bytes - tensor.offset; bytes > held)
    throw std::logic_error(std::to_string(bytes) + " bytes are more than the tensor's " +
                           std::to_string(held));
}

std::vector<double> download_doubles(Device& device, Stream& stream, const Tensor& tensor) {
  return with_element<Bfloat16>(tensor.type, "a parameter", [&](auto zero) {
    const auto elements = download<decltype(zero)>(device, stream, tensor);
    return std::vector<double>(elements.begin(), elements.end());
  });
}

void upload_doubles(Device& device, Stream& stream, const Tensor& tensor, const std::vector<double>& values) {
  with_element<Bfloat16>(tensor.type, "a parameter", [&](auto zero) {
    using T = decltype(zero);
    std::vector<T> elements(values.size());
    std::transform(values.begin(), values.end(), elements.begin(), [](double value) {
      // Not directly from double: a bf16 weight is its fp32 master, rounded.
      return T(static_cast<Wide<T>>(value));
    });
    const auto count = static_cast<int64_t>(elements.size());
    for (int64_t at = 0; at < tensor.elements(); at += count) {
      const int64_t some = std::min(count, tensor.elements() - at);
      device.upload(stream, tensor.part(at, 1, some), std::as_bytes(std::span(elements).first(some)));
    }
  });
}

}  // namespace stp
