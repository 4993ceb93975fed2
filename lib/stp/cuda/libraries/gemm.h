// GEMMs by cuBLASLt: bf16 or float32 inputs, float32 sums, rounded once. float32 is not rounded to TF32.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "stp/device/backend.h"
#include "stp/device/kernel_arguments.h"

namespace stp::cuda {

class CudaDevice;
class CudaStream;

/// The properties by which cuBLASLt chooses a kernel. No size is 0. `type` (bf16 or f32) is the type of a and
/// b; c has that type or f32.
struct GemmProblem {
  GemmShape shape;
  DType type, c_type;
  auto operator<=>(const GemmProblem&) const = default;  // NOLINT(modernize-use-nullptr): of clang-tidy 14
};

/// c = alpha · op(a) · op(b) + beta · from, all row-major and dense.
struct GemmOperands {
  float alpha, beta;
  const void *a, *b;
  void* c;
  const void* from;  // may be c
};

/// Bytes that each operand's address is a multiple of, at most 256: kernels differ in what they need.
struct GemmAlignment {
  uint32_t a, b, c;
  auto operator<=>(const GemmAlignment&) const = default;  // NOLINT(modernize-use-nullptr): of clang-tidy 14
};

class Gemm {
 public:
  struct Plan;

  /// A prepared GEMM. It only needs a stream.
  struct Call {
    const Plan* plan;
    const cublasLtMatmulAlgo_t* algorithm;
    GemmOperands operands;
    void* workspace;
    size_t workspace_bytes;

    void operator()(cudaStream_t stream) const;
  };

  /// `device` must outlive this. Throws CudaError, and InputError like cublas_lt().
  Gemm(CudaDevice& device, GemmOptions options);
  Gemm(const Gemm&) = delete;
  Gemm& operator=(const Gemm&) = delete;
  ~Gemm();

  /// Prepares the next call on `stream`. Chooses the kernel at a problem's first use. Throws CudaError, and
  /// std::runtime_error if cuBLASLt has no kernel.
  Call prepare(Stream& stream, const GemmProblem& problem, const GemmOperands& operands);
  /// Why there is no kernel for a problem whose operands are aligned as memory is allocated; "" if there is
  /// one. Throws CudaError.
  std::string lack_of(const GemmProblem& problem);

 private:
  using Candidates = std::vector<cublasLtMatmulHeuristicResult_t>;

  [[nodiscard]] Plan make_plan(const GemmProblem& problem) const;
  [[nodiscard]] Candidates find(const GemmAlignment& alignment, const Plan& plan) const;
  size_t fastest(CudaStream& after, const Plan& plan, const GemmProblem& problem, GemmOperands operands,
                 const Candidates& candidates);

  CudaDevice& device_;
  const GemmOptions options_;
  cublasLtHandle_t handle_ = nullptr;
  size_t most_workspace_ = 0;  // bytes
  std::map<std::pair<GemmProblem, GemmAlignment>, std::unique_ptr<Plan>> plans_;
};

}  // namespace stp::cuda
