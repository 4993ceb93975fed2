// The machine of kernels_on_host_test and kernels_on_gpu_test: the kernels of the CUDA backend as its devices
// use them, on the fake runtime or on a GPU.
#include <cstdlib>

#include "kernels/kernel_cases.h"
#include "stp/cuda/cuda_backend.h"
#include "stp/cuda/cuda_device.h"
#include "stp/cuda/kernels/cuda_kernels.h"
#ifdef STP_KERNELS_ON_HOST
#include "support/effort.h"
#include "support/simt.h"
#endif

namespace stp::kernel_cases {

using namespace cuda;
namespace {

class CudaMachine : public Machine {
 public:
  Device& device() override { return device_; }
  Kernels& kernels(Attention attention) override {
    switch (attention) {
      case Attention::best:
        return device_.kernels();
      case Attention::tensor_cores:
        return tensor_cores_;
      case Attention::plain:
        return plain_;
    }
    return plain_;
  }
  RunGuard& guard() override { return run_.guard; }
#ifdef STP_KERNELS_ON_HOST
  [[nodiscard]] int orders() const override { return kStride > 1 ? 1 : 3; }
  void choose_order(int order) override { simt::order = static_cast<simt::Order>(order); }
  [[nodiscard]] bool large() const override { return false; }
#else
  [[nodiscard]] int orders() const override { return 1; }  // the GPU's own
  void choose_order(int /*order*/) override {}
  // A sanitizer's run (scripts/gpu.sh) would take minutes.
  [[nodiscard]] bool large() const override { return std::getenv("STP_SMALL_TESTS") == nullptr; }
#endif

 private:
  CudaRun run_{/*deadline_s=*/60, /*gpu=*/0};
  CudaDevice device_{run_, 0, {.poison = true}};
  CudaKernels tensor_cores_{device_, {.attention = CudaAttention::tensor_cores}},
      plain_{device_, {.attention = CudaAttention::plain}};
};

}  // namespace

std::unique_ptr<Machine> make_machine(std::string& reason) {
  reason = lack_of_gpu();
  return reason.empty() ? std::make_unique<CudaMachine>() : nullptr;
}

namespace {

const auto kTypes = testing::Values(DType::f32, DType::bf16);
std::string name_of(const testing::TestParamInfo<DType>& test) { return to_string(test.param); }

#ifdef STP_KERNELS_ON_HOST
INSTANTIATE_TEST_SUITE_P(Host, KernelCases, kTypes, name_of);
#else
INSTANTIATE_TEST_SUITE_P(Gpu, KernelCases, kTypes, name_of);
#endif

}  // namespace

}  // namespace stp::kernel_cases
