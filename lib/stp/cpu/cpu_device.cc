#include "stp/cpu/cpu_device.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "stp/cpu/cpu_kernels.h"
#include "stp/cpu/cpu_stream.h"

namespace stp::cpu {

CpuDevice::CpuDevice(CpuRun& run, int rank, const BackendOptions& options, const ReplaceKernels& replace)
    : Device(options.memory_limit, options.poison),
      run_(run),
      rank_(rank),
      kernels_(make_cpu_kernels(blas_, options.hooks.spoils ? [&run, rank] { return run.hooks.spoils(rank); }
                                                            : std::function<bool()>())) {
  if (replace) kernels_ = replace(std::move(kernels_), *this);
}

CpuDevice::~CpuDevice() { free_blocks(); }

std::unique_ptr<Stream> CpuDevice::make_stream(const std::string& name, StreamPriority) {
  return std::make_unique<CpuStream>(run_, streams_, rank_, name);
}

std::byte* CpuDevice::take_memory(size_t bytes) {
  constexpr size_t kAlignment = 64;
  const size_t whole = std::max<size_t>(1, (bytes + kAlignment - 1) / kAlignment) * kAlignment;
  void* const at = std::aligned_alloc(kAlignment, whole);
  if (at == nullptr) throw OutOfMemory(memory(), "the system has no " + std::to_string(bytes) + " bytes");
  return static_cast<std::byte*>(at);
}

void CpuDevice::free_memory(std::byte* at) { std::free(at); }

void CpuDevice::fill_with_nan(Stream& stream, std::byte* at, size_t bytes) {
  constexpr int kNan = 0xFF;  // a quiet NaN in every floating-point type
  cpu_stream(stream).enqueue([=] { std::memset(at, kNan, bytes); });
}

void CpuDevice::upload(Stream& stream, const Tensor& tensor, std::span<const std::byte> bytes) {
  check_holds(tensor, bytes.size());
  // The address is taken here: the tensor's memory is the host's to change.
  cpu_stream(stream).enqueue(
      [at = address(tensor), copy = std::vector<std::byte>(bytes.begin(), bytes.end())] {
        std::copy(copy.begin(), copy.end(), at);
      });
}

void CpuDevice::download(Stream& stream, const Tensor& tensor, std::span<std::byte> bytes) {
  check_holds(tensor, bytes.size());
  cpu_stream(stream).synchronize();
  std::copy_n(address(tensor), bytes.size(), bytes.data());
}

void CpuDevice::synchronize() {
  for (CpuStream* stream : streams_) stream->synchronize();
  run_.guard.check();
  trim_memory();
}

}  // namespace stp::cpu
