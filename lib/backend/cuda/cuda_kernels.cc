#include "stp/cuda/cuda_kernels.h"

#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "stp/cuda/cuda_check.h"
#include "stp/cuda/cuda_memory.h"
#include "stp/cuda/cuda_stream.h"
#include "stp/cuda/launched_kernels.h"

namespace stp {
namespace {

// Integers that kernels write and the host reads. Used under the mutex of the order of issue alone.
class HostFlags {
 public:
  HostFlags() { grow(); }
  HostFlags(const HostFlags&) = delete;
  HostFlags& operator=(const HostFlags&) = delete;
  ~HostFlags() {
    for (int32_t* block : blocks_) cudaFreeHost(block);
  }

  /// A flag that is 0.
  int32_t* take() {
    if (free_.empty()) grow();
    int32_t* const flag = free_.back();
    free_.pop_back();
    *flag = 0;
    return flag;
  }
  void give_back(int32_t* flag) { free_.push_back(flag); }

 private:
  void grow() {
    constexpr int kFlags = 1024;
    void* block = nullptr;
    STP_CUDA(cudaHostAlloc(&block, kFlags * sizeof(int32_t), cudaHostAllocMapped | cudaHostAllocPortable));
    blocks_.push_back(static_cast<int32_t*>(block));
    for (int i = 0; i < kFlags; ++i) free_.push_back(blocks_.back() + i);
  }

  std::vector<int32_t*> blocks_, free_;
};

class CudaKernels : public LaunchedKernels {
 public:
  CudaKernels(CudaRun& run, const CudaKernelOptions& options)
      : options_(options), current_(run), gemm_(options.gemm, options.pool) {}

 protected:
  void enqueue(Stream& stream, std::function<void(cudaStream_t)> work) override {
    cuda_stream(stream).enqueue(std::move(work));
  }

  void* address(const Tensor& tensor) override { return data<std::byte>(tensor); }

  void* take_scratch(cudaStream_t stream, size_t bytes) override {
    void* scratch = nullptr;
    if (options_.pool != nullptr) {
      STP_CUDA(cudaMallocFromPoolAsync(&scratch, bytes, options_.pool, stream));
    } else {
      STP_CUDA(cudaMallocAsync(&scratch, bytes, stream));
    }
    return scratch;
  }
  void give_back_scratch(cudaStream_t stream, void* scratch) override { cudaFreeAsync(scratch, stream); }

  void copy_bytes(cudaStream_t stream, const void* from, void* to, size_t bytes) override {
    STP_CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream));
  }

  void multiply(cudaStream_t stream, const Product& product) override {
    gemm_.multiply(stream,
                   {product.transpose_a, product.transpose_b, product.m, product.n, product.k, product.type,
                    product.c_type},
                   product.alpha, product.a, product.b, product.beta, product.c);
  }

  void enqueue_check(Stream& stream, const std::string& what,
                     std::function<void(cudaStream_t, int32_t*)> launch) override {
    CudaStream& ours = cuda_stream(stream);
    ours.enqueue([this, &ours, what, launch = std::move(launch)](cudaStream_t s) {
      int32_t* const flag = flags_.take();
      void* mapped = nullptr;
      STP_CUDA(cudaHostGetDevicePointer(&mapped, flag, 0));
      launch(s, static_cast<int32_t*>(mapped));
      ours.when_passed([this, flag, what] {
        const bool finite = *static_cast<const volatile int32_t*>(flag) == 0;
        flags_.give_back(flag);
        if (!finite) throw std::runtime_error(what + " is not finite");
      });
    });
  }

  [[nodiscard]] bool on_tensor_cores(const AttentionShape& shape, DType type) const override {
    return options_.attention != CudaAttention::plain && LaunchedKernels::on_tensor_cores(shape, type);
  }

 private:
  struct MakeCurrent {
    explicit MakeCurrent(CudaRun& run) { run.make_current(); }
  };

  const CudaKernelOptions options_;
  const MakeCurrent current_;  // before what is made for the current device
  HostFlags flags_;
  Gemm gemm_;
};

}  // namespace

std::unique_ptr<Kernels> make_cuda_kernels(CudaRun& run, const CudaKernelOptions& options) {
  return std::make_unique<CudaKernels>(run, options);
}

}  // namespace stp
