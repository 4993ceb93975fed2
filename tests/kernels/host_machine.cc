// The machine of kernels_on_host_test: launched kernels on the CPU backend's memory and streams, run by
// tests/support/simt.h. What cuBLASLt would do is done by plain loops over the same layout.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

#include "kernels/kernel_cases.h"
#include "stp/cpu/cpu_backend.h"
#include "stp/cpu/cpu_memory.h"
#include "stp/cpu/cpu_stream.h"
#include "stp/cuda/gemm_layout.h"
#include "stp/cuda/launched_kernels.h"
#include "support/simt.h"

namespace stp::kernel_cases {

using namespace cuda;
namespace {

double element(const void* matrix, int64_t i, DType type) {
  return type == DType::f32 ? static_cast<const float*>(matrix)[i] : static_cast<const Bfloat16*>(matrix)[i];
}

class HostLaunchedKernels : public LaunchedKernels {
 public:
  explicit HostLaunchedKernels(Attention attention)
      : LaunchedKernels({take, give_back}), attention_(attention) {}

 protected:
  void enqueue(Stream& stream, std::unique_ptr<RepeatableCall> call) override {
    cpu::cpu_stream(stream).enqueue(
        [call = std::shared_ptr<RepeatableCall>(std::move(call))] { call->issue(nullptr); });
  }
  void enqueue(Stream& stream, std::function<void(cudaStream_t)> work) override {
    cpu::cpu_stream(stream).enqueue([work = std::move(work)] { work(nullptr); });
  }
  void expect_held(const Tensor&) override {}
  void* address(const Tensor& tensor) override { return cpu::untyped_data(tensor); }
  void copy_bytes(cudaStream_t, const void* from, void* to, size_t bytes) override {
    std::memcpy(to, from, bytes);
  }
  void multiply(cudaStream_t, const Product& product) override {
    const GemmLayout layout =
        gemm_layout(product.transpose_a, product.transpose_b, product.m, product.n, product.k);
    const auto of = [&](const void* matrix, const ColumnMajor& at, int64_t row, int64_t column) {
      if (at.transposed) std::swap(row, column);
      if (row >= at.rows || column >= at.columns || at.leading < at.rows)
        throw std::logic_error("a matrix is read past its end");
      return element(matrix, column * at.leading + row, product.type);
    };
    // The operands are swapped: b is the left factor.
    for (int64_t row = 0; row < layout.result.rows; ++row)
      for (int64_t column = 0; column < layout.result.columns; ++column) {
        double sum = 0;
        for (int64_t i = 0; i < layout.inner; ++i)
          sum += of(product.b, layout.left, row, i) * of(product.a, layout.right, i, column);
        const int64_t to = column * layout.result.leading + row;
        sum *= product.alpha;
        if (product.beta != 0) sum += product.beta * element(product.c, to, product.c_type);
        if (product.c_type == DType::f32) {
          static_cast<float*>(product.c)[to] = static_cast<float>(sum);
        } else {
          static_cast<Bfloat16*>(product.c)[to] = Bfloat16(static_cast<float>(sum));
        }
      }
  }
  void enqueue_check(Stream& stream, const std::string& what,
                     std::function<void(cudaStream_t, int32_t*)> launch) override {
    cpu::cpu_stream(stream).enqueue([what, launch = std::move(launch)] {
      int32_t flag = 0;
      launch(nullptr, &flag);
      if (flag != 0) throw std::runtime_error(what + " is not finite");
    });
  }
  [[nodiscard]] bool on_tensor_cores(const AttentionShape& shape, DType type) const override {
    return attention_ != Attention::plain && LaunchedKernels::on_tensor_cores(shape, type);
  }

 private:
  static constexpr size_t kGuard = 64;

  static void* take(cudaStream_t, size_t bytes) {
    void* const scratch = std::aligned_alloc(64, (bytes + kGuard + 63) / 64 * 64);
    std::memset(scratch, 0xff, bytes + kGuard);  // NaN
    return scratch;
  }
  static void give_back(cudaStream_t, void* scratch, size_t bytes) {
    const auto* const guard = static_cast<const unsigned char*>(scratch) + bytes;
    const bool untouched =
        std::all_of(guard, guard + kGuard, [](unsigned char byte) { return byte == 0xff; });
    std::free(scratch);
    if (!untouched) throw std::logic_error("a write past the end of scratch memory");
  }

  const Attention attention_;
};

class HostMachine : public Machine {
 public:
  Device& device() override { return backend_->device(0); }
  Kernels& kernels(Attention attention) override {
    return attention == Attention::plain ? plain_ : tensor_cores_;
  }
  RunGuard& guard() override { return backend_->guard(); }
  [[nodiscard]] int orders() const override { return 3; }
  void choose_order(int order) override { simt::order = static_cast<simt::Order>(order); }
  [[nodiscard]] bool large() const override { return false; }

 private:
  HostLaunchedKernels tensor_cores_{Attention::tensor_cores}, plain_{Attention::plain};
  const std::unique_ptr<Backend> backend_ = cpu::make_backend({.world_size = 1, .poison = true});
};

}  // namespace

std::unique_ptr<Machine> make_machine(std::string& /*reason*/) { return std::make_unique<HostMachine>(); }

}  // namespace stp::kernel_cases
