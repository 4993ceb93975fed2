// The machine of kernels_on_gpu_test: the kernels of the CUDA backend as its devices use them.
#include "kernels/kernel_cases.h"
#include "stp/cuda/cuda_backend.h"
#include "stp/cuda/cuda_device.h"
#include "stp/cuda/cuda_kernels.h"

namespace stp::kernel_cases {

using namespace cuda;
namespace {

class GpuMachine : public Machine {
 public:
  Device& device() override { return device_; }
  Kernels& kernels(Attention attention) override {
    switch (attention) {
      case Attention::best:
        return device_.kernels();
      case Attention::tensor_cores:
        return *tensor_cores_;
      case Attention::plain:
        return *plain_;
    }
    return *plain_;
  }
  RunGuard& guard() override { return run_.guard; }
  [[nodiscard]] int orders() const override { return 1; }  // the GPU's own
  void choose_order(int /*order*/) override {}
  [[nodiscard]] bool large() const override { return true; }

 private:
  CudaRun run_{/*deadline_s=*/60, /*ranks=*/1, /*gpu=*/0};
  CudaDevice device_{run_, 0, {.poison = true}};
  const std::unique_ptr<Kernels> tensor_cores_ =
                                     make_cuda_kernels(run_, device_.scratch().memory(),
                                                       {.attention = CudaAttention::tensor_cores}),
                                 plain_ = make_cuda_kernels(run_, device_.scratch().memory(),
                                                            {.attention = CudaAttention::plain});
};

}  // namespace

std::unique_ptr<Machine> make_machine(std::string& reason) {
  reason = lack_of_gpu();
  return reason.empty() ? std::make_unique<GpuMachine>() : nullptr;
}

}  // namespace stp::kernel_cases
