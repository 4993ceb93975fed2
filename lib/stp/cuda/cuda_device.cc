#include "stp/cuda/cuda_device.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "stp/cuda/cuda_check.h"
#include "stp/cuda/cuda_kernels.h"
#include "stp/cuda/cuda_memory.h"
#include "stp/cuda/cuda_stream.h"
#include "stp/cuda/staging_ring.h"

namespace stp::cuda {
namespace {

/// Pinned memory of a rank, and what goes through it at a time: several pieces are under way at once.
constexpr size_t kStagingBytes = size_t{16} << 20;
constexpr size_t kPieceBytes = size_t{4} << 20;

void check_fits(const Tensor& tensor, size_t bytes) {
  if (bytes > held_memory(tensor).bytes)
    throw std::logic_error(std::to_string(bytes) + " bytes are more than the tensor's " +
                           std::to_string(tensor.memory->bytes));
}

/// Calls work(offset, bytes) for each piece of `total` bytes.
template <typename Work>
void for_each_piece(size_t total, Work work) {
  for (size_t at = 0; at < total; at += kPieceBytes) work(at, std::min(kPieceBytes, total - at));
}

}  // namespace

/// What the rank has of the GPU's memory; slots see to it that little of it is ever given back.
class CudaDevice::Pool {
 public:
  explicit Pool(int gpu) {
    cudaMemPoolProps properties{};
    properties.allocType = cudaMemAllocationTypePinned;
    properties.location.type = cudaMemLocationTypeDevice;
    properties.location.id = gpu;
    STP_CUDA(cudaMemPoolCreate(&handle_, &properties));
  }
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;
  ~Pool() { cudaMemPoolDestroy(handle_); }

  [[nodiscard]] void* take(cudaStream_t stream, size_t bytes) const {
    void* at = nullptr;
    const cudaError_t state = cudaMallocFromPoolAsync(&at, bytes, handle_, stream);
    if (state == cudaErrorMemoryAllocation) {
      static_cast<void>(cudaGetLastError());
      throw std::runtime_error("out of memory: the GPU has no " + std::to_string(bytes) + " bytes more");
    }
    check_call(state, cuda_error_text, "cudaMallocFromPoolAsync", __FILE__, __LINE__);
    return at;
  }

 private:
  cudaMemPool_t handle_ = nullptr;
};

struct CudaDevice::Staging {
  StagingRing ring{kStagingBytes};
  std::byte* host = nullptr;
};

CudaDevice::CudaDevice(CudaRun& run, int rank, const BackendOptions& options)
    : run_(run),
      rank_(rank),
      poison_(options.poison),
      graphs_(options.graphs),
      ledger_(options.memory_limit),
      scratch_(
          [this](cudaStream_t stream, size_t bytes) {
            ledger_.add_scratch(bytes);
            return fresh(stream, bytes);
          },
          poison_) {
  run_.make_current();
  pool_ = std::make_unique<Pool>(run_.gpu());
  kernels_ = make_cuda_kernels(run_, scratch_.memory(),
                               {.gemm = {.time_candidates = options.time_products,
                                         .multiprocessors = options.product_multiprocessors}});
}

// A pool that is destroyed lives on until all that was taken from it is freed. Where streams ended at work,
// as those of a failed run may, nobody can say when the GPU has done with the memory: it goes with the
// process.
CudaDevice::~CudaDevice() {
  try {
    run_.make_current();  // for what ends here
  } catch (const std::exception&) {
    // The run has failed; whoever ends it knows.
  }
  kernels_.reset();
  if (run_.left_at_work()) return;
  for (void* at : live_) cudaFree(at);  // of a pool: does not wait
}

std::unique_ptr<Stream> CudaDevice::make_stream(const std::string& name, StreamPriority priority) {
  return std::make_unique<CudaStream>(run_, rank_, name, priority, graphs_);
}

void* CudaDevice::fresh(cudaStream_t stream, size_t bytes) {
  void* at = pool_->take(stream, bytes);
  live_.insert(at);
  return at;
}

Tensor CudaDevice::allocate(Stream& stream, MemoryKind kind, DType type, int64_t rows, int64_t columns) {
  if (rows < 0 || columns < 0) throw std::logic_error("a tensor of negative size");
  CudaStream& worker = cuda_stream(stream);
  const auto memory = std::make_shared<CudaMemory>();
  Tensor tensor{memory, rows, columns, type};
  memory->bytes = tensor.bytes();
  memory->kind = kind;
  try {
    ledger_.allocate(kind, memory->bytes);
  } catch (const std::runtime_error& error) {
    run_.guard.fail(run_.where(rank_, worker.name(), worker.op()) + ": " + error.what());
    return tensor;
  }
  memory->held = true;
  const auto [slot, is_new] = slots_.take(&worker, memory->bytes);
  memory->slot = slot;
  if (is_new || poison_)
    worker.enqueue([this, slot = slot, is_new = is_new](cudaStream_t at) {
      if (is_new) slot->at = fresh(at, slot->bytes);
      if (poison_) STP_CUDA(cudaMemsetAsync(slot->at, kPoison, slot->bytes, at));
    });
  return tensor;
}

void CudaDevice::retag(Stream& stream, const Tensor& tensor, MemoryKind kind) {
  cuda_stream(stream);
  CudaMemory& memory = cuda_memory(tensor);
  if (run_.guard.failed()) return;
  held_memory(tensor);
  ledger_.retag(memory.kind, kind, memory.bytes);
  memory.kind = kind;
}

void CudaDevice::release(Stream& stream, Tensor& tensor) {
  CudaStream& worker = cuda_stream(stream);
  CudaMemory& memory = cuda_memory(tensor);
  const Tensor released = std::exchange(tensor, {});
  if (run_.guard.failed()) return;
  held_memory(released);
  ledger_.release(memory.kind, memory.bytes);
  memory.held = false;
  if (poison_)
    worker.enqueue([slot = memory.slot](cudaStream_t at) {
      STP_CUDA(cudaMemsetAsync(slot->at, kPoison, slot->bytes, at));
    });
  slots_.give_back(&worker, memory.slot, [&] {
    return [this, left = std::dynamic_pointer_cast<CudaEvent>(worker.record())] {
      run_.make_current();
      return run_.order.is_issued(*left) && left->passed();
    };
  });
}

CudaDevice::Staging& CudaDevice::staging() {
  if (!staging_) {
    staging_ = std::make_shared<Staging>();
    staging_->host = static_cast<std::byte*>(run_.pinned(kStagingBytes));
  }
  return *staging_;
}

// Where there is no room, it comes when the rank's streams have passed what was given them.
size_t CudaDevice::take_staging(size_t bytes) {
  StagingRing& ring = staging().ring;
  if (const auto at = ring.take(bytes)) return *at;
  for (CudaStream* stream : run_.streams_of(rank_)) {
    stream->synchronize();
    if (const auto at = ring.take(bytes)) return *at;
  }
  throw std::logic_error("pinned memory was not given back");
}

void CudaDevice::upload(Stream& stream, const Tensor& tensor, std::span<const std::byte> bytes) {
  check_fits(tensor, bytes.size());
  CudaStream& worker = cuda_stream(stream);
  for_each_piece(bytes.size(), [&](size_t offset, size_t size) {
    const size_t place = take_staging(size);
    std::memcpy(staging_->host + place, bytes.data() + offset, size);
    worker.enqueue([&worker, tensor, offset, size, place, staging = staging_](cudaStream_t at) {
      STP_CUDA(cudaMemcpyAsync(data<std::byte>(tensor) + offset, staging->host + place, size,
                               cudaMemcpyHostToDevice, at));
      worker.when_passed([staging, place] { staging->ring.give_back(place); });
    });
  });
}

void CudaDevice::download(Stream& stream, const Tensor& tensor, std::span<std::byte> bytes) {
  check_fits(tensor, bytes.size());
  CudaStream& worker = cuda_stream(stream);
  if (bytes.empty()) return worker.synchronize();
  for_each_piece(bytes.size(), [&](size_t offset, size_t size) {
    const size_t place = take_staging(size);
    worker.enqueue([tensor, offset, size, place, staging = staging_](cudaStream_t at) {
      STP_CUDA(cudaMemcpyAsync(staging->host + place, data<std::byte>(tensor) + offset, size,
                               cudaMemcpyDeviceToHost, at));
    });
    worker.synchronize();
    std::memcpy(bytes.data() + offset, staging_->host + place, size);
    staging_->ring.give_back(place);
  });
}

std::optional<double> CudaDevice::share_in_graphs() {
  if (!graphs_) return std::nullopt;
  const GraphCounts counts = graphs();
  const uint64_t all = counts.launched + counts.replayed;
  return all == 0 ? 0 : static_cast<double>(counts.replayed) / static_cast<double>(all);
}

bool CudaDevice::time_kernels(bool on) {
  for (CudaStream* stream : run_.streams_of(rank_)) stream->time_work(on);
  return true;
}

double CudaDevice::take_kernel_seconds() {
  double seconds = 0;
  for (CudaStream* stream : run_.streams_of(rank_)) seconds += stream->take_work_seconds();
  return seconds;
}

void CudaDevice::synchronize() {
  const std::vector<CudaStream*> streams = run_.streams_of(rank_);
  for (CudaStream* stream : streams) stream->synchronize();
  run_.guard.check();
  if (streams.empty()) return;
  for (const SlotRef& slot : slots_.settle())
    streams.front()->enqueue([this, slot](cudaStream_t at) {
      STP_CUDA(cudaFreeAsync(slot->at, at));
      live_.erase(slot->at);
    });
}

}  // namespace stp::cuda
