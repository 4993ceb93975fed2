#include "stp/cpu/cpu_kernels.h"

#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include "stp/cpu/attention.h"
#include "stp/cpu/cpu_stream.h"
#include "stp/cpu/elementwise.h"
#include "stp/cpu/operand.h"

namespace stp::cpu {

template <typename T>
void compute(const kernel::Gemm& k, BlasCounter& counter) {
  const auto multiply = [&](T* c) {
    blas_gemm<T>(counter, k.shape(), k.alpha, {In<T>(k.a), k.a.columns}, {In<T>(k.b), k.b.columns}, k.beta,
                 {c, k.c.columns});
  };
  if (k.beta != 0 && !k.from) return multiply(InOut<T>(k.c));
  const Out<T> c(k.c);
  if (k.beta != 0) std::memmove(c, In<T>(k.from), k.c.elements() * sizeof(T));
  multiply(c);
}

namespace {

// Each kernel is a task of its stream, in the type in which it computes: float if X is bf16.
class CpuKernels : public KernelsAlike<CpuKernels> {
 public:
  CpuKernels(BlasCounter& counter, std::function<bool()> spoils)
      : counter_(counter), spoils_(std::move(spoils)) {}
  [[nodiscard]] bool vision() const override { return true; }

  template <typename Kernel>
  void run_any(Stream& stream, const Kernel& kernel) {
    if (kernel.type() == DType::f64)
      cpu_stream(stream).enqueue([kernel, this] { run_as<double>(kernel); });
    else
      cpu_stream(stream).enqueue([kernel, this] { run_as<float>(kernel); });
    if constexpr (std::is_same_v<Kernel, kernel::Gemm>)
      if (spoils_ && spoils_())
        run_any(stream, kernel::Fill{.tensor = kernel.c, .value = std::numeric_limits<double>::quiet_NaN()});
  }

 private:
  template <typename T, typename Kernel>
  void run_as(const Kernel& kernel) {
    if constexpr (requires { compute<T>(kernel, counter_); })
      compute<T>(kernel, counter_);
    else
      compute<T>(kernel);
  }

  BlasCounter& counter_;
  const std::function<bool()> spoils_;
};

}  // namespace

std::unique_ptr<Kernels> make_cpu_kernels(BlasCounter& counter, std::function<bool()> spoils) {
  return std::make_unique<CpuKernels>(counter, std::move(spoils));
}

}  // namespace stp::cpu
