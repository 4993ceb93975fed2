#include "stp/cuda/cuda_run.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <thread>
#include <utility>

#include "stp/cuda/cuda_check.h"
#include "stp/cuda/cuda_stream.h"

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#define STP_HAVE_NVTX
#endif

namespace stp::cuda {

void set_current_gpu(int gpu) {
  thread_local int current = -1;
  if (current == gpu) return;
  STP_CUDA(cudaSetDevice(gpu));
  current = gpu;
}

CudaRun::CudaRun(double deadline_s, Progress* progress, int gpu)
    : RunContext(deadline_s, progress), gpu_(gpu), events_(std::make_shared<CudaEvents>()) {
  make_current();
  STP_CUDA(cudaStreamCreateWithFlags(&side_stream_, cudaStreamNonBlocking));
  alarm_flag_ = static_cast<int32_t*>(pinned(sizeof *alarm_flag_));  // now: later it would wait for the GPU
  *alarm_flag_ = 0;
  renew_clock();
}

CudaRun::~CudaRun() {
  if (left_at_work_) return;  // the calls below would wait for the GPU
  // The pool keeps what was freed until a call that waits, and there is none: another run, or a library, may
  // need it.
  cudaMemPool_t pool = nullptr;
  if (cudaDeviceGetDefaultMemPool(&pool, gpu_) == cudaSuccess && drained()) cudaMemPoolTrimTo(pool, 0);
  for (void* block : pinned_) cudaFreeHost(block);
  cudaStreamDestroy(side_stream_);
}

// Whether what was freed is free, or soon is.
bool CudaRun::drained() {
  try {
    wait_until([this] { return is_idle(side_stream_); }, [] { return "the host waits for freed memory"; });
    return true;
  } catch (const std::exception&) {
    return false;  // the run has failed
  }
}

void CudaRun::wait_until(const std::function<bool()>& ready, const std::function<std::string()>& who,
                         double patience) {
  // Most waits are short. After these tries the thread sleeps between polls.
  constexpr int kTries = 200;
  constexpr std::chrono::microseconds kPause{20};
  const auto deadline = patience * guard.deadline();
  const auto is_ready = [&] {
    sweep();
    guard.check();
    return ready();
  };
  Idle idle = guard.idle();
  for (int tries = 0;; ++tries) {
    if (is_ready()) return;
    if (idle.time() > deadline) {
      const std::string stuck = unfinished();
      const std::string text = (stuck.empty() ? "" : stuck + " is not done; ") + who();
      if (is_ready()) return;
      guard.fail_idle(text, deadline);
      throw Cancelled();
    }
    if (tries >= kTries) std::this_thread::sleep_for(kPause);
  }
}

// Forgets the marks that the GPU has passed, and fails the run on errors.
void CudaRun::sweep() {
  if (guard.failed()) return;
  for (CudaStream* stream : streams_) stream->sweep();
  if (look_) look_();
  if (const int32_t mark = *static_cast<const volatile int32_t*>(alarm_flag_); mark != 0)
    guard.fail(alarms_[mark - 1]);
}

// Work is given after all work that it waits for, so the first mark is where the GPU hangs.
std::string CudaRun::unfinished() const {
  const CudaStream::Mark* first = nullptr;
  std::string where;
  for (const CudaStream* stream : streams_)
    if (const CudaStream::Mark* mark = stream->first_mark();
        mark != nullptr && (first == nullptr || mark->number < first->number)) {
      first = mark;
      where = stream->where(*mark);
    }
  return where;
}

void CudaRun::renew_clock() {
  if (!events_->wants_epoch()) return;
  const cudaEvent_t epoch = events_->take();
  STP_CUDA(cudaEventRecord(epoch, side_stream_));
  wait_until([&] { return has_passed(epoch); }, [] { return "the host waits for the GPU's clock"; });
  events_->add_epoch(epoch);
}

void* CudaRun::pinned(size_t bytes) {
  make_current();
  void* block = nullptr;
  const cudaError_t state = cudaHostAlloc(&block, bytes, cudaHostAllocDefault);
  if (state == cudaErrorMemoryAllocation) {
    static_cast<void>(cudaGetLastError());
    throw std::runtime_error("out of memory: the host cannot pin " + std::to_string(bytes) + " bytes more");
  }
  check_call(state, cuda_error_text, "cudaHostAlloc", __FILE__, __LINE__);
  pinned_.push_back(block);
  return block;
}

void CudaRun::unpin(void* block) {
  static_cast<void>(cudaFreeHost(block));  // only a failed GPU refuses
  std::erase(pinned_, block);
}

std::pair<int32_t*, int32_t> CudaRun::alarm(std::string text) {
  alarms_.push_back(std::move(text));
  return {alarm_flag_, static_cast<int32_t>(alarms_.size())};
}

void CudaRun::forget_alarms() {
  if (std::all_of(streams_.begin(), streams_.end(), [](const CudaStream* stream) { return stream->idle(); }))
    alarms_.clear();
}

// Shows it as a range of Nsight Systems, with the names of torch's profiles for pipeline actions.
void CudaRun::show_op([[maybe_unused]] int rank, [[maybe_unused]] std::optional<uint32_t> op) {
#ifdef STP_HAVE_NVTX
  static const nvtxDomainHandle_t domain = nvtxDomainCreateA("stp");  // null if no tool listens
  if (op == shown_op_ || domain == nullptr) return;
  if (shown_op_) nvtxDomainRangePop(domain);
  shown_op_ = op;
  if (!op) return;
  const std::string name = "PP:" + words(rank, *op);
  nvtxEventAttributes_t attributes{};
  attributes.version = NVTX_VERSION;
  attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  attributes.messageType = NVTX_MESSAGE_TYPE_ASCII;
  attributes.message.ascii = name.c_str();
  nvtxDomainRangePushEx(domain, &attributes);
#endif
}

}  // namespace stp::cuda
