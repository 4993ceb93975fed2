// Cases of kernels, run on a machine and compared with the CPU backend in float64. They are in two programs:
// one runs the kernels on the host, the other on a GPU (host_or_gpu.cc).
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "stp/cuda/cuda_device.h"
#include "stp/cuda/kernels/cuda_kernels.h"
#include "stp/device/backend.h"
#include "stp/device/kernels.h"

namespace stp::kernel_cases {

using cuda::CudaAttention;
using Values = std::vector<double>;

/// Where the kernels under test run. Made again for each test.
struct Machine {
  cuda::CudaRun run{/*deadline_s=*/60};
  cuda::CudaDevice device{run, 0, {.poison = true}};
  cuda::CudaKernels tensor_cores{device, CudaAttention::tensor_cores}, plain{device, CudaAttention::plain};

  Kernels& kernels(CudaAttention attention) {
    if (attention == CudaAttention::cudnn) return device.kernels();  // as the backend chooses
    return attention == CudaAttention::plain ? plain : tensor_cores;
  }
};
/// In how many orders of threads a machine can run, and the choice of one (host_or_gpu.cc).
int orders();
void choose_order(int order);
/// Whether it can afford sizes that fill a GPU.
bool large();

/// Which type of kernel_arguments.h a tensor has.
enum class Kind { x, statistics, total, index };
enum class Role { in, out, in_out };

struct Operand {
  int64_t rows, columns;
  Kind kind = Kind::x;
  Role role = Role::in;
  Values values = {};  // of `in` and `in_out`
};

using Tensors = std::vector<Tensor>;
/// Calls kernels on tensors that are in the order of the operands.
struct On {
  Kernels& kernels;
  Stream& stream;
  const Tensors& t;

  template <typename Kernel>
  void issue(const Kernel& kernel) const {
    kernels.issue(stream, kernel);
  }
};
using Call = std::function<void(const On&)>;

/// How far results may be away: |result − exact| / |exact| over the whole tensor, and for each element
/// |result − exact| / (|exact| + root of the mean square), of its row or of the tensor, whichever is larger:
/// a small sum of large parts is as far off as the parts, such as the first token's gradients by many
/// queries.
struct Tolerance {
  double whole, element;
};
inline constexpr Tolerance kFloat{1e-5, 1e-4};
/// Of results in bf16, and of statistics and sums of what is bf16. Those that are not bf16 are held to
/// kFloat.
struct Rounded {
  Tolerance results{3e-3, 6e-3}, sums = kFloat;
};
/// Of attention in bf16, which may round its probabilities and their gradients, and take its exponentials as
/// powers of two.
inline constexpr Rounded kAttention{.results = {1e-2, 5e-2}, .sums = {1e-4, 1e-3}};

/// The parameter is X, f32 or bf16.
class KernelCases : public testing::TestWithParam<DType> {
 protected:
  void SetUp() override;

  [[nodiscard]] DType type_of(Kind kind) const;
  /// What a tensor of the kind keeps of a value.
  [[nodiscard]] double rounded(double value, Kind kind = Kind::x) const;
  /// Normally distributed, times `scale`, as a tensor of the kind can hold them.
  Values random(int64_t count, Kind kind = Kind::x, double scale = 1);

  Operand in(int64_t rows, int64_t columns, Kind kind = Kind::x) {
    return {rows, columns, kind, Role::in, random(rows * columns, kind)};
  }
  Operand in_out(int64_t rows, int64_t columns, Kind kind = Kind::x) {
    return {rows, columns, kind, Role::in_out, random(rows * columns, kind)};
  }
  /// An input of exact values, as a tensor of the kind can hold them.
  Operand kept(int64_t rows, int64_t columns, Values values, Kind kind = Kind::x) const {
    for (double& value : values) value = rounded(value, kind);
    return {rows, columns, kind, Role::in, std::move(values)};
  }
  static Operand out(int64_t rows, int64_t columns, Kind kind = Kind::x) {
    return {rows, columns, kind, Role::out};
  }

  /// The results of `call` by the kernels under test, in every order of threads, are those of the CPU backend
  /// in float64; what is only read stays as it was. Fresh memory is NaN. Returns the exact values of all
  /// operands.
  std::vector<Values> expect_exact(const std::vector<Operand>& operands, const Call& call,
                                   const Rounded& bf16 = {}, CudaAttention attention = CudaAttention::cudnn);

  /// The same of both directions of attention (attention_cases.cc).
  void expect_attention(const std::vector<AttentionShape>& shapes, CudaAttention attention);
  void expect_ring_step(const AttentionShape& shape, const AttentionBlock& block, CudaAttention attention);

  std::unique_ptr<Machine> machine_;
  std::unique_ptr<Backend> reference_;

 private:
  std::mt19937 engine_{1};
};

}  // namespace stp::kernel_cases
