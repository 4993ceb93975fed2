#include "stp/cuda/cuda_check.h"
#include "stp/cuda/nccl_session.h"

namespace stp {
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

  [[nodiscard]] bool passed() const {
    const cudaError_t state = cudaEventQuery(event_);
    if (state == cudaErrorNotReady) return false;
    check_call(state, cuda_error_text, "cudaEventQuery", __FILE__, __LINE__);
    return true;
  }

 private:
  cudaEvent_t event_ = nullptr;
};

}  // namespace

NcclDevice cuda_runtime_for_nccl() {
  return {
      .record = [](cudaStream_t stream) -> std::shared_ptr<void> { return std::make_shared<Mark>(stream); },
      .passed = [](void* mark) { return static_cast<const Mark*>(mark)->passed(); },
      .copy =
          [](void* to, const void* from, size_t bytes, cudaStream_t stream) {
            STP_CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream));
          }};
}

}  // namespace stp
