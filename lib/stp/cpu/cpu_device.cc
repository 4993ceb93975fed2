#include "stp/cpu/cpu_device.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "stp/cpu/cpu_kernels.h"
#include "stp/cpu/cpu_stream.h"

namespace stp::cpu {
namespace {

CpuMemory& memory_of(const Tensor& tensor) {
  auto* memory = dynamic_cast<CpuMemory*>(tensor.memory.get());
  if (memory == nullptr) throw std::logic_error("the tensor is empty, or of another backend");
  return *memory;
}

void check_fits(const Tensor& tensor, size_t bytes) {
  if (bytes > memory_of(tensor).bytes)
    throw std::logic_error(std::to_string(bytes) + " bytes are more than the tensor's " +
                           std::to_string(tensor.memory->bytes));
}

}  // namespace

/// A stream that is in its device's list as long as it lives.
class CpuDevice::Registered : public CpuStream {
 public:
  Registered(CpuDevice& device, const std::string& name)
      : CpuStream(device.run_, device.rank_, name), device_(device) {
    device_.streams_.push_back(this);
  }
  Registered(const Registered&) = delete;
  Registered& operator=(const Registered&) = delete;
  ~Registered() override { std::erase(device_.streams_, this); }

 private:
  CpuDevice& device_;
};

CpuDevice::CpuDevice(CpuRun& run, int rank, const BackendOptions& options)
    : run_(run),
      rank_(rank),
      allocator_(options.memory_limit, options.poison),
      kernels_(make_cpu_kernels(blas_)) {}

std::unique_ptr<Stream> CpuDevice::make_stream(const std::string& name, StreamPriority) {
  return std::make_unique<Registered>(*this, name);
}

Tensor CpuDevice::allocate(Stream& stream, MemoryKind kind, DType type, int64_t rows, int64_t columns) {
  if (rows < 0 || columns < 0) throw std::logic_error("a tensor of negative size");
  const auto memory = std::make_shared<CpuMemory>();
  Tensor tensor{memory, rows, columns, type};
  memory->bytes = tensor.bytes();
  memory->kind = kind;
  cpu_stream(stream).enqueue([this, memory] { allocator_.allocate(*memory); });
  return tensor;
}

void CpuDevice::retag(Stream& stream, const Tensor& tensor, MemoryKind kind) {
  memory_of(tensor);
  cpu_stream(stream).enqueue([this, tensor, kind] { allocator_.retag(memory_of(tensor), kind); });
}

void CpuDevice::release(Stream& stream, Tensor& tensor) {
  memory_of(tensor);
  cpu_stream(stream).enqueue(
      [this, released = std::exchange(tensor, {})] { allocator_.release(memory_of(released)); });
}

void CpuDevice::upload(Stream& stream, const Tensor& tensor, std::span<const std::byte> bytes) {
  check_fits(tensor, bytes.size());
  cpu_stream(stream).enqueue([tensor, copy = std::vector<std::byte>(bytes.begin(), bytes.end())] {
    std::copy(copy.begin(), copy.end(), data<std::byte>(tensor));
  });
}

void CpuDevice::download(Stream& stream, const Tensor& tensor, std::span<std::byte> bytes) {
  check_fits(tensor, bytes.size());
  cpu_stream(stream).synchronize();
  std::copy_n(data<std::byte>(tensor), bytes.size(), bytes.data());
}

void CpuDevice::synchronize() {
  for (CpuStream* stream : streams_) stream->synchronize();
  run_.guard.check();
}

}  // namespace stp::cpu
