#include "stp/cuda/gemm.h"

#include <limits>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "stp/cuda/cublas_lt_api.h"
#include "stp/cuda/cuda_check.h"
#include "stp/cuda/gemm_layout.h"

namespace stp::cuda {
namespace {

constexpr int kCandidates = 64;  // that are timed, at the most

struct DestroyEvent {
  void operator()(cudaEvent_t event) const { cudaEventDestroy(event); }
};
template <auto destroy>
struct Destroy {
  template <typename T>
  void operator()(T* handle) const {
    (cublas_lt().*destroy)(handle);
  }
};
template <typename Handle, auto destroy>
using Owned = std::unique_ptr<std::remove_pointer_t<Handle>, Destroy<destroy>>;
using Descriptor = Owned<cublasLtMatmulDesc_t, &CublasLtApi::cublasLtMatmulDescDestroy>;
using Layout = Owned<cublasLtMatrixLayout_t, &CublasLtApi::cublasLtMatrixLayoutDestroy>;
using Preference = Owned<cublasLtMatmulPreference_t, &CublasLtApi::cublasLtMatmulPreferenceDestroy>;
using EventHandle = std::unique_ptr<std::remove_pointer_t<cudaEvent_t>, DestroyEvent>;

cudaDataType_t type_of(DType type) { return type == DType::bf16 ? CUDA_R_16BF : CUDA_R_32F; }

Layout make_layout(DType type, const ColumnMajor& matrix) {
  cublasLtMatrixLayout_t layout = nullptr;
  STP_CUBLAS(cublasLtMatrixLayoutCreate(&layout, type_of(type), static_cast<uint64_t>(matrix.rows),
                                        static_cast<uint64_t>(matrix.columns), matrix.leading));
  return Layout(layout);
}

template <typename Value>
void set(const Descriptor& descriptor, cublasLtMatmulDescAttributes_t attribute, const Value& value) {
  STP_CUBLAS(cublasLtMatmulDescSetAttribute(descriptor.get(), attribute, &value, sizeof value));
}

Descriptor make_descriptor(const GemmLayout& layout, int multiprocessors) {
  cublasLtMatmulDesc_t made = nullptr;
  STP_CUBLAS(cublasLtMatmulDescCreate(&made, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  Descriptor descriptor(made);
  const auto operation = [](const ColumnMajor& matrix) {
    return matrix.transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
  };
  set(descriptor, CUBLASLT_MATMUL_DESC_TRANSA, operation(layout.left));
  set(descriptor, CUBLASLT_MATMUL_DESC_TRANSB, operation(layout.right));
  if (multiprocessors > 0) set(descriptor, CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, int32_t{multiprocessors});
  return descriptor;
}

Preference make_preference(size_t workspace_bytes) {
  cublasLtMatmulPreference_t made = nullptr;
  STP_CUBLAS(cublasLtMatmulPreferenceCreate(&made));
  Preference preference(made);
  STP_CUBLAS(cublasLtMatmulPreferenceSetAttribute(made, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                  &workspace_bytes, sizeof workspace_bytes));
  // Where an inner dimension is split, its parts are added in float32, not in c's type.
  const uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  STP_CUBLAS(cublasLtMatmulPreferenceSetAttribute(made, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                                  &reductions, sizeof reductions));
  return preference;
}

EventHandle make_event() {
  cudaEvent_t event = nullptr;
  STP_CUDA(cudaEventCreate(&event));
  return EventHandle(event);
}

std::string words(const GemmShape& shape) {
  return std::to_string(shape.m) + " x " + std::to_string(shape.n) + " x " + std::to_string(shape.k) +
         (shape.transpose_a ? ", a transposed" : "") + (shape.transpose_b ? ", b transposed" : "") + ", " +
         to_string(shape.type) + " to " + to_string(shape.c_type);
}

// What cuBLAS recommends: Hopper's kernels split more.
size_t recommended_workspace() {
  int device = 0, major = 0;
  STP_CUDA(cudaGetDevice(&device));
  STP_CUDA(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  return (major >= 9 ? size_t{32} : size_t{4}) << 20;
}

}  // namespace

struct Gemm::Plan {
  Descriptor descriptor;
  Layout left, right, result;
  size_t result_bytes;
  std::vector<cublasLtMatmulHeuristicResult_t> algorithms;  // best first: the first is used
};

struct Gemm::Call {
  cudaStream_t stream;
  float alpha, beta;
  const void *left, *right;
  void* result;
};

Gemm::Gemm(const GemmOptions& options, ScratchMemory scratch)
    : options_(options), scratch_(std::move(scratch)), most_workspace_(recommended_workspace()) {
  STP_CUBLAS(cublasLtCreate(&handle_));
}

Gemm::~Gemm() { cublas_lt().cublasLtDestroy(handle_); }

void Gemm::multiply(cudaStream_t stream, const GemmShape& shape, double alpha, const void* a, const void* b,
                    double beta, void* c) {
  const Call call{stream, static_cast<float>(alpha), static_cast<float>(beta), b, a, c};
  const Plan& chosen = plan(shape, call);
  run(chosen, chosen.algorithms.front(), call);
}

const Gemm::Plan& Gemm::plan(const GemmShape& shape, const Call& call) {
  std::unique_ptr<Plan>& plan = plans_[shape];
  if (plan) return *plan;
  const GemmLayout layout = gemm_layout(shape.transpose_a, shape.transpose_b, shape.m, shape.n, shape.k);
  auto made = std::make_unique<Plan>(Plan{make_descriptor(layout, options_.multiprocessors),
                                          make_layout(shape.type, layout.left),
                                          make_layout(shape.type, layout.right),
                                          make_layout(shape.c_type, layout.result),
                                          static_cast<size_t>(shape.m * shape.n) * bytes_of(shape.c_type),
                                          {}});
  const Preference preference = make_preference(most_workspace_);
  std::vector<cublasLtMatmulHeuristicResult_t> found(options_.time_candidates ? kCandidates : 1);
  int count = 0;
  const CublasLtApi& library = cublas_lt();
  const cublasStatus_t status = library.cublasLtMatmulAlgoGetHeuristic(
      handle_, made->descriptor.get(), made->left.get(), made->right.get(), made->result.get(),
      made->result.get(), preference.get(), static_cast<int>(found.size()), found.data(), &count);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED) {
    count = 0;  // its way to say that there is none
  } else {
    check_call(status, library.cublasLtGetStatusName, "cublasLtMatmulAlgoGetHeuristic", __FILE__, __LINE__);
  }
  for (int i = 0; i < count; ++i)
    if (found[i].state == CUBLAS_STATUS_SUCCESS) made->algorithms.push_back(found[i]);
  if (made->algorithms.empty())
    throw std::runtime_error("cuBLASLt has no algorithm for the product " + words(shape));
  if (made->algorithms.size() > 1) take_fastest(*made, call);
  plan = std::move(made);
  return *plan;
}

// Results go to memory of their own: c may be added to.
void Gemm::take_fastest(Plan& plan, const Call& call) {
  constexpr int kRuns = 3;
  const EventHandle begin = make_event(), end = make_event();
  size_t best = 0;
  float fastest = std::numeric_limits<float>::infinity();
  scratch_.with(call.stream, plan.result_bytes, [&](void* result) {
    Call trial = call;
    trial.result = result;
    trial.beta = 0;
    for (size_t i = 0; i < plan.algorithms.size(); ++i) {
      run(plan, plan.algorithms[i], trial);  // its code is loaded
      STP_CUDA(cudaEventRecord(begin.get(), call.stream));
      for (int repeat = 0; repeat < kRuns; ++repeat) run(plan, plan.algorithms[i], trial);
      STP_CUDA(cudaEventRecord(end.get(), call.stream));
      STP_CUDA(cudaEventSynchronize(end.get()));
      float milliseconds = 0;
      STP_CUDA(cudaEventElapsedTime(&milliseconds, begin.get(), end.get()));
      if (milliseconds >= fastest) continue;
      fastest = milliseconds;
      best = i;
    }
  });
  plan.algorithms = {plan.algorithms[best]};
}

void Gemm::run(const Plan& plan, const cublasLtMatmulHeuristicResult_t& algorithm, const Call& call) {
  scratch_.with(call.stream, algorithm.workspaceSize, [&](void* workspace) {
    STP_CUBLAS(cublasLtMatmul(handle_, plan.descriptor.get(), &call.alpha, call.left, plan.left.get(),
                              call.right, plan.right.get(), &call.beta, call.result, plan.result.get(),
                              call.result, plan.result.get(), &algorithm.algo, workspace,
                              algorithm.workspaceSize, call.stream));
  });
}

}  // namespace stp::cuda
