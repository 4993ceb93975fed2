#include "stp/cuda/libraries/gemm.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

#include "stp/cuda/cuda_device.h"
#include "stp/cuda/libraries/cublas_lt_api.h"

namespace stp::cuda {
namespace {

constexpr int kMostCandidates = 64;  // largest number of timed candidates

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

// The layout of a dense row-major matrix of `rows` x `columns` for the library, whose matrices are
// column-major: the transpose. The library therefore computes cᵀ = op(b)ᵀ · op(a)ᵀ with b as the left factor
// and a as the right factor; the flags keep their meaning.
Layout make_layout(DType type, int64_t rows, int64_t columns) {
  cublasLtMatrixLayout_t layout = nullptr;
  STP_CUBLAS(cublasLtMatrixLayoutCreate(&layout, type == DType::bf16 ? CUDA_R_16BF : CUDA_R_32F,
                                        static_cast<uint64_t>(columns), static_cast<uint64_t>(rows),
                                        columns));
  return Layout(layout);
}

template <typename Value>
void set(const Descriptor& descriptor, cublasLtMatmulDescAttributes_t attribute, const Value& value) {
  STP_CUBLAS(cublasLtMatmulDescSetAttribute(descriptor.get(), attribute, &value, sizeof value));
}

Descriptor make_descriptor(const GemmShape& shape, int multiprocessors) {
  cublasLtMatmulDesc_t made = nullptr;
  STP_CUBLAS(cublasLtMatmulDescCreate(&made, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  Descriptor descriptor(made);
  set(descriptor, CUBLASLT_MATMUL_DESC_TRANSA, shape.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(descriptor, CUBLASLT_MATMUL_DESC_TRANSB, shape.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
  if (multiprocessors > 0) set(descriptor, CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, int32_t{multiprocessors});
  return descriptor;
}

Preference make_preference(size_t workspace_bytes, const GemmAlignment& alignment) {
  cublasLtMatmulPreference_t made = nullptr;
  STP_CUBLAS(cublasLtMatmulPreferenceCreate(&made));
  Preference preference(made);
  STP_CUBLAS(cublasLtMatmulPreferenceSetAttribute(made, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                  &workspace_bytes, sizeof workspace_bytes));
  // If an inner dimension is split, its parts are added in float32, not in c's type.
  const uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  STP_CUBLAS(cublasLtMatmulPreferenceSetAttribute(made, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                                  &reductions, sizeof reductions));
  // The library's matrices a and b are our b and a: it reads column-major.
  for (const auto& [attribute, bytes] : {std::pair(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment.b),
                                         std::pair(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment.a),
                                         std::pair(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment.c),
                                         std::pair(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment.c)})
    STP_CUBLAS(cublasLtMatmulPreferenceSetAttribute(made, attribute, &bytes, sizeof bytes));
  return preference;
}

// Of allocated memory, in bytes, and the most that kernels ask for.
constexpr uint32_t kAligned = 256;

uint32_t alignment_of(const void* pointer) {
  const auto address =
      reinterpret_cast<uintptr_t>(pointer);  // NOLINT(cppcoreguidelines-pro-type-reinterpret-cast)
  return uint32_t{1} << std::min(std::countr_zero(address), std::countr_zero(kAligned));
}

std::string words(const GemmProblem& problem) {
  const GemmShape& shape = problem.shape;
  return std::to_string(shape.m) + " x " + std::to_string(shape.n) + " x " + std::to_string(shape.k) +
         (shape.transpose_a ? ", a transposed" : "") + (shape.transpose_b ? ", b transposed" : "") + ", " +
         to_string(problem.type) + " to " + to_string(problem.c_type);
}

std::string no_kernel(const GemmProblem& problem) {
  return "cuBLASLt has no algorithm for the GEMM " + words(problem);
}

// cuBLAS's recommendation: Hopper's kernels split more.
size_t recommended_workspace() {
  int device = 0, major = 0;
  STP_CUDA(cudaGetDevice(&device));
  STP_CUDA(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  return (major >= 9 ? size_t{32} : size_t{4}) << 20;
}

}  // namespace

struct Gemm::Plan {
  cublasLtHandle_t handle;
  Descriptor descriptor;
  Layout a, b, c;
  cublasLtMatmulHeuristicResult_t chosen;
};

void Gemm::Call::operator()(cudaStream_t stream) const {
  STP_CUBLAS(cublasLtMatmul(plan->handle, plan->descriptor.get(), &operands.alpha, operands.b, plan->b.get(),
                            operands.a, plan->a.get(), &operands.beta, operands.from, plan->c.get(),
                            operands.c, plan->c.get(), algorithm, workspace, workspace_bytes, stream));
}

Gemm::Gemm(CudaDevice& device, GemmOptions options)
    : device_(device), options_(options), most_workspace_(recommended_workspace()) {
  STP_CUBLAS(cublasLtCreate(&handle_));
}

Gemm::~Gemm() {
  if (device_.run().left_at_work()) return;  // the library would wait for the GPU
  cublas_lt().cublasLtDestroy(handle_);
}

Gemm::Call Gemm::prepare(Stream& stream, const GemmProblem& problem, const GemmOperands& operands) {
  const GemmAlignment alignment{alignment_of(operands.a), alignment_of(operands.b),
                                std::min(alignment_of(operands.c), alignment_of(operands.from))};
  std::unique_ptr<Plan>& plan = plans_[{problem, alignment}];
  if (!plan) {
    Plan made = make_plan(problem);
    const Candidates candidates = find(alignment, made);
    if (candidates.empty()) throw std::runtime_error(no_kernel(problem));
    const bool timed = candidates.size() > 1;
    made.chosen = candidates[timed ? fastest(cuda_stream(stream), made, problem, operands, candidates) : 0];
    plan = std::make_unique<Plan>(std::move(made));
  }
  const size_t bytes = plan->chosen.workspaceSize;
  return {plan.get(), &plan->chosen.algo, operands, device_.scratch(stream, bytes), bytes};
}

std::string Gemm::lack_of(const GemmProblem& problem) {
  return find({kAligned, kAligned, kAligned}, make_plan(problem)).empty() ? no_kernel(problem) : "";
}

Gemm::Plan Gemm::make_plan(const GemmProblem& problem) const {
  const auto& [ta, tb, m, n, k] = problem.shape;
  return {handle_,
          make_descriptor(problem.shape, options_.multiprocessors),
          make_layout(problem.type, ta ? k : m, ta ? m : k),
          make_layout(problem.type, tb ? n : k, tb ? k : n),
          make_layout(problem.c_type, m, n),
          {}};
}

// The library's candidates, best first by its own estimate; none if it has none.
Gemm::Candidates Gemm::find(const GemmAlignment& alignment, const Plan& plan) const {
  const Preference preference = make_preference(most_workspace_, alignment);
  Candidates found(options_.time_candidates ? kMostCandidates : 1);
  int count = 0;
  const CublasLtApi& library = cublas_lt();
  const cublasStatus_t status = library.cublasLtMatmulAlgoGetHeuristic(
      handle_, plan.descriptor.get(), plan.b.get(), plan.a.get(), plan.c.get(), plan.c.get(),
      preference.get(), static_cast<int>(found.size()), found.data(), &count);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED) {
    count = 0;  // the library reports "no candidate" this way
  } else {
    check_call(status, library.cublasLtGetStatusName, "cublasLtMatmulAlgoGetHeuristic", __FILE__, __LINE__);
  }
  found.resize(static_cast<size_t>(count));
  std::erase_if(found, [](const auto& each) { return each.state != CUBLAS_STATUS_SUCCESS; });
  return found;
}

// Times the candidates, behind the work of `after`. Results go to separate memory, as c may be what is added
// to: to scratch of a stream of their own, which ends with it, since the result of a weight gradient is
// large.
size_t Gemm::fastest(CudaStream& after, const Plan& plan, const GemmProblem& problem, GemmOperands operands,
                     const Candidates& candidates) {
  constexpr int kRuns = 3;
  const size_t bytes = static_cast<size_t>(problem.shape.m * problem.shape.n) * bytes_of(problem.c_type),
               result_bytes = (bytes + kAligned - 1) / kAligned * kAligned;
  size_t most_workspace = 0;
  for (const auto& candidate : candidates) most_workspace = std::max(most_workspace, candidate.workspaceSize);
  const std::unique_ptr<Stream> own = device_.make_stream("trials of a GEMM", StreamPriority::compute);
  own->wait(after.record());
  CudaStream& stream = cuda_stream(*own);
  std::byte* const memory = device_.scratch(stream, result_bytes + most_workspace);
  operands.c = memory;
  size_t best = 0;
  double least = std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < candidates.size(); ++i) {
    const size_t workspace = candidates[i].workspaceSize;
    const Call trial{&plan, &candidates[i].algo, operands, workspace > 0 ? memory + result_bytes : nullptr,
                     workspace};
    stream.give(trial);  // loads its code
    const EventRef begin = stream.record();
    for (int run = 0; run < kRuns; ++run) stream.give(trial);
    const EventRef end = stream.record();
    const auto done = std::dynamic_pointer_cast<CudaEvent>(end);
    device_.run().wait_until([&] { return done->passed(); }, [] { return "the host times a GEMM"; });
    const double seconds = end->seconds() - begin->seconds();
    if (seconds >= least) continue;
    least = seconds;
    best = i;
  }
  return best;
}

}  // namespace stp::cuda
