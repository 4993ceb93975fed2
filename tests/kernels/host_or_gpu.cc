// How much the cases do on the fake runtime (kernels_on_host_test) and on a GPU (kernels_on_gpu_test).
#include <cstdlib>

#include "kernels/kernel_cases.h"
#ifdef STP_KERNELS_ON_HOST
#include "support/effort.h"
#include "support/simt.h"
#endif

namespace stp::kernel_cases {

#ifdef STP_KERNELS_ON_HOST
int orders() { return kStride > 1 ? 1 : 3; }
void choose_order(int order) { simt::order = static_cast<simt::Order>(order); }
bool large() { return false; }
#else
int orders() { return 1; }  // the GPU's own
void choose_order(int /*order*/) {}
// A sanitizer's run (scripts/gpu.sh) would take minutes.
bool large() { return std::getenv("STP_SMALL_TESTS") == nullptr; }
#endif

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
