// Matrix products by cuBLASLt: bf16 or float32 in, sums in float32, rounded once.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <compare>
#include <cstdint>
#include <map>
#include <memory>

#include "stp/backend/tensor.h"

namespace stp {

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

  auto operator<=>(const GemmShape&) const = default;
};

/// Not for several threads at once. Its streams are done before it ends.
class Gemm {
 public:
  /// For the current device; workspaces come from `pool` (null: the device's own). Throws CudaError.
  Gemm(const GemmOptions& options, cudaMemPool_t pool);
  Gemm(const Gemm&) = delete;
  Gemm& operator=(const Gemm&) = delete;
  ~Gemm();

  /// Throws CudaError, and std::runtime_error where cuBLASLt has no algorithm. The first call on a stream
  /// allocates its workspace, and so cannot be captured into a graph.
  void multiply(cudaStream_t stream, const GemmShape& shape, double alpha, const void* a, const void* b,
                double beta, void* c);

 private:
  struct Plan;
  struct Call;

  const Plan& plan(const GemmShape& shape, const Call& call);
  void take_fastest(Plan& plan, const Call& call);
  void run(const Plan& plan, const cublasLtMatmulAlgo_t& algorithm, const Call& call);
  void* allocate(cudaStream_t stream, size_t bytes);
  void* workspace(cudaStream_t stream);

  const GemmOptions options_;
  const cudaMemPool_t pool_;
  cublasLtHandle_t handle_ = nullptr;
  size_t workspace_bytes_ = 0;
  std::map<cudaStream_t, void*> workspaces_;
  std::map<GemmShape, std::unique_ptr<Plan>> plans_;
};

}  // namespace stp
