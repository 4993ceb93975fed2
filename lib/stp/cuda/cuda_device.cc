#include "stp/cuda/cuda_device.h"

#include <algorithm>
#include <cstring>
#include <exception>

#include "stp/cuda/cuda_check.h"
#include "stp/cuda/kernels/cuda_kernels.h"
#include "stp/cuda/kernels/pause.h"

namespace stp::cuda {
namespace {

/// A rank's pinned memory, and the size of a piece that passes through it: several pieces are in transfer at
/// once.
constexpr size_t kStagingBytes = size_t{16} << 20;
constexpr size_t kPieceBytes = size_t{4} << 20;

/// Calls work(offset, bytes) for each piece of `total` bytes.
template <typename Work>
void for_each_piece(size_t total, Work work) {
  for (size_t at = 0; at < total; at += kPieceBytes) work(at, std::min(kPieceBytes, total - at));
}

}  // namespace

CudaDevice::CudaDevice(CudaRun& run, int rank, const BackendOptions& options)
    : Device(options.memory_limit, options.poison),
      run_(run),
      rank_(rank),
      poison_(options.poison),
      has_graphs_(options.graphs) {
  run_.make_current();
  kernels_ = std::make_unique<CudaKernels>(*this, CudaAttention::cudnn, options.gemm);
}

CudaDevice::~CudaDevice() {
  try {
    run_.make_current();  // for the resources that end here
  } catch (const std::exception&) {
    // The run has failed, and its owner knows that.
  }
  kernels_.reset();
  if (!run_.left_at_work()) free_blocks();
}

std::unique_ptr<Stream> CudaDevice::make_stream(const std::string& name, StreamPriority priority) {
  return std::make_unique<CudaStream>(*this, name, priority);
}

std::vector<CudaStream*> CudaDevice::streams() const {
  std::vector<CudaStream*> own;
  for (CudaStream* stream : run_.streams())
    if (&stream->device() == this) own.push_back(stream);
  return own;
}

// ---- memory ----

// From CUDA's pool, on a stream without other work: cudaMalloc and cudaFree may wait for all work of the GPU.
std::byte* CudaDevice::take_memory(size_t bytes) {
  run_.make_current();
  void* at = nullptr;
  const cudaError_t state = cudaMallocAsync(&at, std::max<size_t>(bytes, 1), run_.side_stream());
  if (state == cudaErrorMemoryAllocation) {
    static_cast<void>(cudaGetLastError());
    throw OutOfMemory(memory(), "the GPU has no " + std::to_string(bytes) + " bytes more");
  }
  check_call(state, cuda_error_text, "cudaMallocAsync", __FILE__, __LINE__);
  run_.wait_until([this] { return is_idle(run_.side_stream()); },
                  [this] { return "rank " + std::to_string(rank_) + ", host, waits for memory"; });
  return static_cast<std::byte*>(at);
}

void CudaDevice::free_memory(std::byte* at) {
  static_cast<void>(cudaFreeAsync(at, run_.side_stream()));  // only a failed GPU refuses
}

// Pinned memory: other memory is not copied beside the GPU's work. Both calls may wait for the GPU. The
// allocator makes the first one only during the first step, and the second when the GPU has finished.
std::byte* CudaDevice::take_host_memory(size_t bytes) {
  return static_cast<std::byte*>(run_.pinned(std::max<size_t>(bytes, 1)));
}

void CudaDevice::free_host_memory(std::byte* at) { run_.unpin(at); }

void CudaDevice::fill_with_nan(Stream& stream, std::byte* at, size_t bytes) {
  constexpr int kNan = 0xFF;  // a quiet NaN in every floating-point type
  if (bytes == 0) return;
  cuda_stream(stream).give([=](cudaStream_t on) { STP_CUDA(cudaMemsetAsync(at, kNan, bytes, on)); });
}

// A block that became too small stays: kernels may still use it.
std::byte* CudaDevice::scratch(Stream& stream, size_t bytes) {
  if (bytes == 0) return nullptr;
  std::vector<Block>& blocks = scratch_[&cuda_stream(stream)];
  if (blocks.empty() || blocks.back().bytes < bytes) {
    memory().add_scratch(bytes);
    try {
      blocks.push_back({take_memory(bytes), bytes});
    } catch (const OutOfMemory&) {
      memory().release_scratch(bytes);
      throw;
    }
  }
  if (poison_) fill_with_nan(stream, blocks.back().at, blocks.back().bytes);
  return blocks.back().at;
}

void CudaDevice::forget(const CudaStream& stream) {
  ended_graphs_ += stream.graphs();
  const auto found = scratch_.find(&stream);
  if (found == scratch_.end()) return;
  for (const Block& block : found->second) {
    memory().release_scratch(block.bytes);
    if (!run_.left_at_work()) free_memory(block.at);
  }
  scratch_.erase(found);
}

// ---- data of the host ----

std::byte* CudaDevice::staging(size_t bytes) {
  if (pinned_ == nullptr) pinned_ = static_cast<std::byte*>(run_.pinned(kStagingBytes));
  const size_t begin = pinned_end_ + bytes <= kStagingBytes ? pinned_end_ : 0;
  pinned_end_ = begin + bytes;
  const auto in_the_way = [&] {
    return std::any_of(staged_.begin(), staged_.end(),
                       [&](const Staged& piece) { return piece.begin < pinned_end_ && begin < piece.end; });
  };
  while (!staged_.empty() && staged_.front().copied->passed()) staged_.pop_front();
  for (; in_the_way(); staged_.pop_front())
    run_.wait_until([this] { return staged_.front().copied->passed(); },
                    [this] { return "rank " + std::to_string(rank_) + ", host, waits for copies"; });
  return pinned_ + begin;
}

void CudaDevice::upload(Stream& stream, const Tensor& tensor, std::span<const std::byte> bytes) {
  check_holds(tensor, bytes.size());
  CudaStream& to = cuda_stream(stream);
  for_each_piece(bytes.size(), [&](size_t offset, size_t size) {
    if (run_.guard.failed()) return;
    std::byte* const piece = staging(size);
    std::memcpy(piece, bytes.data() + offset, size);
    to.give([&](cudaStream_t on) {
      STP_CUDA(cudaMemcpyAsync(address(tensor) + offset, piece, size, cudaMemcpyHostToDevice, on));
    });
    const auto begin = static_cast<size_t>(piece - pinned_);
    staged_.push_back({begin, begin + size, std::dynamic_pointer_cast<CudaEvent>(to.record())});
  });
}

void CudaDevice::download(Stream& stream, const Tensor& tensor, std::span<std::byte> bytes) {
  check_holds(tensor, bytes.size());
  CudaStream& from = cuda_stream(stream);
  from.synchronize();
  for_each_piece(bytes.size(), [&](size_t offset, size_t size) {
    const std::byte* const piece = staging(size);
    from.give([&](cudaStream_t on) {
      STP_CUDA(cudaMemcpyAsync(const_cast<std::byte*>(piece), address(tensor) + offset, size,
                               cudaMemcpyDeviceToHost, on));
    });
    from.synchronize();
    std::memcpy(bytes.data() + offset, piece, size);
  });
}

// ---- all streams ----

void CudaDevice::synchronize() {
  for (CudaStream* stream : streams()) stream->synchronize();
  run_.guard.check();
  run_.forget_alarms();
  run_.renew_clock();
  trim_memory();
}

void CudaDevice::pause(Stream& stream, double seconds) {
  cuda::pause(stream, static_cast<uint64_t>(1e9 * seconds));
}

GraphCounts CudaDevice::graphs() const {
  GraphCounts all = ended_graphs_;
  for (const CudaStream* stream : streams()) all += stream->graphs();
  return all;
}

std::optional<double> CudaDevice::share_in_graphs() {
  if (!has_graphs_) return std::nullopt;
  const GraphCounts counts = graphs();
  const uint64_t all = counts.alone + counts.in_graphs;
  return all == 0 ? 0 : static_cast<double>(counts.in_graphs) / static_cast<double>(all);
}

bool CudaDevice::time_kernels(bool on) {
  for (CudaStream* stream : streams()) stream->time_kernels(on);
  return true;
}

double CudaDevice::take_kernel_seconds() {
  double seconds = 0;
  for (CudaStream* stream : streams()) seconds += stream->take_kernel_seconds();
  return seconds;
}

}  // namespace stp::cuda
