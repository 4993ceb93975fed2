#include "stp/cuda/cuda_check.h"
#include "stp/cuda/cuda_event.h"
#include "stp/cuda/cuda_run.h"
#include "stp/cuda/nccl_session.h"

namespace stp::cuda {
namespace {

// An event without timing, which no clock needs.
class Mark {
 public:
  explicit Mark(cudaStream_t stream) {
    STP_CUDA(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming));
    try {
      STP_CUDA(cudaEventRecord(event_, stream));
    } catch (...) {
      cudaEventDestroy(event_);
      throw;
    }
  }
  Mark(const Mark&) = delete;
  Mark& operator=(const Mark&) = delete;
  ~Mark() { cudaEventDestroy(event_); }

  [[nodiscard]] bool passed() const { return has_passed(event_); }

 private:
  cudaEvent_t event_ = nullptr;
};

// Made when it is needed.
class OwnStream {
 public:
  OwnStream() = default;
  OwnStream(const OwnStream&) = delete;
  OwnStream& operator=(const OwnStream&) = delete;
  ~OwnStream() {
    if (handle_ != nullptr) cudaStreamDestroy(handle_);  // does not wait
  }
  cudaStream_t get() {
    if (handle_ == nullptr) STP_CUDA(cudaStreamCreateWithFlags(&handle_, cudaStreamNonBlocking));
    return handle_;
  }

 private:
  cudaStream_t handle_ = nullptr;
};

}  // namespace

// Threads of NCCL's session come here too, whose current device may be another: a call of CUDA would set up
// that one.
NcclDevice cuda_runtime_for_nccl(const CudaRun& run) {
  NcclDevice device;
  device.record = [&run](cudaStream_t stream) -> std::shared_ptr<void> {
    run.make_current();
    // An event that is captured can neither be asked for nor passed.
    cudaStreamCaptureStatus capture{};
    STP_CUDA(cudaStreamIsCapturing(stream, &capture));
    if (capture != cudaStreamCaptureStatusNone) return nullptr;
    return std::make_shared<Mark>(stream);
  };
  device.passed = [&run](void* mark) {
    run.make_current();
    return static_cast<const Mark*>(mark)->passed();
  };
  device.copy = [&run](void* to, const void* from, size_t bytes, cudaStream_t stream) {
    run.make_current();
    STP_CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream));
  };
  device.stream = [&run, own = std::make_shared<OwnStream>()] {
    run.make_current();
    return own->get();
  };
  return device;
}

}  // namespace stp::cuda
