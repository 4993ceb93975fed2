// Matrix products by cuBLASLt: bf16 or float32 in, sums in float32, rounded once.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <cstdint>
#include <map>
#include <memory>
#include <tuple>

#include "stp/cuda/scratch_memory.h"
#include "stp/device/tensor.h"

namespace stp::cuda {

struct GemmOptions {
  /// The candidates of cuBLASLt's heuristic are timed where a shape is first used, which waits for the GPU,
  /// instead of the first one being taken. For benchmarks of products.
  bool time_candidates = false;
  /// How many multiprocessors the kernels are chosen for; 0: all. Fewer leave room for communication beside
  /// them.
  int multiprocessors = 0;
};

/// c = alpha · op(a) · op(b) + beta · c, all row-major and dense; op(a) is m × k, op(b) k × n. No size is 0.
/// With beta 0, c is not read. `type` (bf16 or f32) is that of a and b; c is of it or of f32. f32 is not
/// rounded to TF32.
struct GemmShape {
  bool transpose_a, transpose_b;
  int64_t m, n, k;
  DType type, c_type;

  bool operator<(const GemmShape& other) const { return key() < other.key(); }

 private:
  [[nodiscard]] std::tuple<bool, bool, int64_t, int64_t, int64_t, DType, DType> key() const {
    return {transpose_a, transpose_b, m, n, k, type, c_type};
  }
};

/// Not for several threads at once. Its streams are done before it ends.
class Gemm {
 public:
  /// For the current device. Throws CudaError, and InputError as cublas_lt() does.
  Gemm(const GemmOptions& options, ScratchMemory scratch);
  Gemm(const Gemm&) = delete;
  Gemm& operator=(const Gemm&) = delete;
  ~Gemm();

  /// Throws CudaError, and std::runtime_error where cuBLASLt has no algorithm. Every call takes its workspace
  /// from the scratch memory and gives it back, in the order of the stream.
  void multiply(cudaStream_t stream, const GemmShape& shape, double alpha, const void* a, const void* b,
                double beta, void* c);

 private:
  struct Plan;
  struct Call;

  const Plan& plan(const GemmShape& shape, const Call& call);
  void take_fastest(Plan& plan, const Call& call);
  void run(const Plan& plan, const cublasLtMatmulHeuristicResult_t& algorithm, const Call& call);

  const GemmOptions options_;
  const ScratchMemory scratch_;
  cublasLtHandle_t handle_ = nullptr;
  size_t most_workspace_ = 0;  // bytes
  std::map<GemmShape, std::unique_ptr<Plan>> plans_;
};

}  // namespace stp::cuda
