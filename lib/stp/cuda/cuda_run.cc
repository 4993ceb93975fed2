#include "stp/cuda/cuda_run.h"

#include <algorithm>
#include <iterator>

#include "stp/cuda/cuda_check.h"
#include "stp/cuda/cuda_stream.h"
#include "stp/cuda/op_ranges.h"

namespace stp::cuda {
namespace {

constexpr std::chrono::milliseconds kSweep{10};

}  // namespace

void set_current_gpu(int gpu) {
  thread_local int current = -1;
  if (current == gpu) return;
  STP_CUDA(cudaSetDevice(gpu));
  current = gpu;
}

CudaRun::CudaRun(double deadline_s, int ranks, int gpu)
    : RunContext(deadline_s), gpu_(gpu), order(*this, ranks, this) {
  make_current();
  events_ = std::make_shared<CudaEvents>();
}

CudaRun::CudaRun(RunGuard& of_run, int ranks, int gpu)
    : RunContext(of_run), gpu_(gpu), order(*this, ranks, this) {
  make_current();
  events_ = std::make_shared<CudaEvents>();
}

CudaRun::~CudaRun() {
  if (left_at_work_) return;
  for (void* block : pinned_) cudaFreeHost(block);
}

void* CudaRun::pinned(size_t bytes) {
  make_current();
  void* block = nullptr;
  STP_CUDA(cudaHostAlloc(&block, bytes, cudaHostAllocDefault));
  const std::lock_guard lock(pinned_mutex_);
  pinned_.push_back(block);
  return block;
}

std::vector<CudaStream*> CudaRun::streams_of(int rank) {
  const std::lock_guard lock(streams_mutex_);
  std::vector<CudaStream*> own;
  std::copy_if(streams_.begin(), streams_.end(), std::back_inserter(own),
               [&](const CudaStream* stream) { return stream->rank() == rank; });
  return own;
}

GraphCounts CudaRun::graphs(int rank) {
  const std::lock_guard lock(streams_mutex_);
  GraphCounts all = ended_graphs_[rank];
  for (const CudaStream* stream : streams_)
    if (stream->rank() == rank) all += stream->graphs();
  return all;
}

void CudaRun::begin(int rank, std::optional<uint32_t> op) {
  if (profiler_attached()) begin_op_range(op ? words(rank, *op) : "no op");
}

void CudaRun::end() {
  if (profiler_attached()) end_op_range();
}

// Work is issued after all that it waits for, so whatever keeps the device is where the first mark is.
std::string CudaRun::unfinished() {
  const std::lock_guard lock(streams_mutex_);
  const CudaStream* first = nullptr;
  for (CudaStream* stream : streams_) {
    stream->sweep();
    if (stream->marks_.empty()) continue;
    if (first == nullptr || stream->marks_.front().number < first->marks_.front().number) first = stream;
  }
  return first == nullptr ? "" : where(first->rank(), first->name(), first->marks_.front().op);
}

void CudaRun::sweep_now_and_then() {
  const auto now = std::chrono::steady_clock::now();
  if (now < next_sweep_) return;
  next_sweep_ = now + kSweep;
  const std::lock_guard lock(streams_mutex_);
  for (CudaStream* stream : streams_) stream->sweep();
}

}  // namespace stp::cuda
