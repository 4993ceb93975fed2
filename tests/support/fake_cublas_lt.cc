#include "support/fake_cublas_lt.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <numeric>
#include <vector>

#include "stp/cuda/libraries/cublas_lt_api.h"
#include "stp/device/bfloat16.h"
#include "support/fake_cuda.h"

namespace stp {
namespace fake_cublas_lt {

State& state() {
  static State state;
  return state;
}

}  // namespace fake_cublas_lt

namespace cuda {
namespace {

using fake_cublas_lt::state;

constexpr int kRubbish = 0x5A;
std::mutex mutex;  // processes may be threads of a test

int the_handle;  // of all: who leaves one, as where the GPU is stuck, leaks no memory
struct Layout {
  cudaDataType type;
  int64_t rows, columns, leading;
};
struct Descriptor {
  cublasOperation_t left = CUBLAS_OP_N, right = CUBLAS_OP_N;
  int32_t multiprocessors = 0;
};
struct Preference {
  size_t workspace_bytes = 0;
  uint32_t reductions = 0;
  std::array<uint32_t, 4> alignments{256, 256, 256, 256};  // the library's defaults
};

template <typename Ours, typename Theirs>
cublasStatus_t create(Theirs* made, const Ours& value = {}) {
  const std::lock_guard lock(mutex);
  ++state().alive;
  *made = reinterpret_cast<Theirs>(new Ours(value));
  return CUBLAS_STATUS_SUCCESS;
}
template <typename Ours, typename Theirs>
cublasStatus_t destroy(Theirs handle) {
  const std::lock_guard lock(mutex);
  --state().alive;
  delete reinterpret_cast<Ours*>(handle);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t create_handle(cublasLtHandle_t* made) {
  const std::lock_guard lock(mutex);
  ++state().alive;
  *made = reinterpret_cast<cublasLtHandle_t>(&the_handle);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t destroy_handle(cublasLtHandle_t) {
  const std::lock_guard lock(mutex);
  --state().alive;
  return CUBLAS_STATUS_SUCCESS;
}
template <typename Ours, typename Theirs>
const Ours& of(Theirs handle) {
  return *reinterpret_cast<const Ours*>(handle);
}
template <typename Value>
cublasStatus_t set(Value& value, const void* from, size_t bytes) {
  if (bytes != sizeof value) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&value, from, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

const char* status_name(cublasStatus_t status) {
  return status == CUBLAS_STATUS_NOT_SUPPORTED   ? "CUBLAS_STATUS_NOT_SUPPORTED"
         : status == CUBLAS_STATUS_INVALID_VALUE ? "CUBLAS_STATUS_INVALID_VALUE"
                                                 : "CUBLAS_STATUS_FAKE";
}

cublasStatus_t set_descriptor(cublasLtMatmulDesc_t at, cublasLtMatmulDescAttributes_t attribute,
                              const void* value, size_t bytes) {
  auto& descriptor = *reinterpret_cast<Descriptor*>(at);
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return set(descriptor.left, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return set(descriptor.right, value, bytes);
    case CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET:
      return set(descriptor.multiprocessors, value, bytes);
    default:
      return CUBLAS_STATUS_NOT_SUPPORTED;
  }
}

cublasStatus_t set_preference(cublasLtMatmulPreference_t at, cublasLtMatmulPreferenceAttributes_t attribute,
                              const void* value, size_t bytes) {
  auto& preference = *reinterpret_cast<Preference*>(at);
  switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
      return set(preference.workspace_bytes, value, bytes);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
      return set(preference.reductions, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
      return set(preference.alignments[0], value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
      return set(preference.alignments[1], value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
      return set(preference.alignments[2], value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
      return set(preference.alignments[3], value, bytes);
    default:
      return CUBLAS_STATUS_NOT_SUPPORTED;
  }
}

bool is_aligned(const void* pointer, uint64_t bytes) {
  return reinterpret_cast<uintptr_t>(pointer) % bytes == 0;
}

// result = op(left) · op(right), all column-major.
struct Shape {
  Layout left, right, result;
  bool transpose_left, transpose_right;

  Shape(const Descriptor& descriptor, const Layout& a, const Layout& b, const Layout& c)
      : left(a),
        right(b),
        result(c),
        transpose_left(descriptor.left == CUBLAS_OP_T),
        transpose_right(descriptor.right == CUBLAS_OP_T) {}
  [[nodiscard]] int64_t inner() const { return transpose_left ? left.rows : left.columns; }
  [[nodiscard]] bool fits() const {
    const auto dense = [](const Layout& layout) {
      return layout.rows > 0 && layout.columns > 0 && layout.leading >= layout.rows;
    };
    return dense(left) && dense(right) && dense(result) && left.type == right.type &&
           result.rows == (transpose_left ? left.columns : left.rows) &&
           result.columns == (transpose_right ? right.rows : right.columns) &&
           inner() == (transpose_right ? right.columns : right.rows);
  }
};

double read(const void* matrix, cudaDataType type, int64_t at) {
  return type == CUDA_R_32F ? static_cast<const float*>(matrix)[at]
                            : static_cast<float>(static_cast<const Bfloat16*>(matrix)[at]);
}
// The vectors that sums are made of: rows of a left factor, or columns of a right one, one after the other.
std::vector<double> vectors(const void* matrix, const Layout& layout, bool of_rows, bool transposed) {
  const bool strided = of_rows != transposed;
  const int64_t count = strided ? layout.rows : layout.columns,
                length = strided ? layout.columns : layout.rows;
  std::vector<double> all(static_cast<size_t>(count * length));
  for (int64_t vector = 0; vector < count; ++vector)
    for (int64_t i = 0; i < length; ++i) {
      const int64_t row = strided ? vector : i, column = strided ? i : vector;
      all[vector * length + i] = read(matrix, layout.type, column * layout.leading + row);
    }
  return all;
}

void multiply(const Shape& shape, double alpha, const void* left, const void* right, double beta,
              const void* add, void* result) {
  const Layout& to = shape.result;
  const int64_t inner = shape.inner();
  const std::vector<double> rows = vectors(left, shape.left, true, shape.transpose_left),
                            columns = vectors(right, shape.right, false, shape.transpose_right);
  for (int64_t column = 0; column < to.columns; ++column)
    for (int64_t row = 0; row < to.rows; ++row) {
      const auto first = rows.begin() + row * inner;
      const double sum = std::inner_product(first, first + inner, columns.begin() + column * inner, 0.0);
      const int64_t at = column * to.leading + row;
      const auto value = static_cast<float>(alpha * sum + (beta == 0 ? 0 : beta * read(add, to.type, at)));
      if (to.type == CUDA_R_32F) {
        static_cast<float*>(result)[at] = value;
      } else {
        static_cast<Bfloat16*>(result)[at] = Bfloat16(value);
      }
    }
}

cublasStatus_t heuristic(cublasLtHandle_t, cublasLtMatmulDesc_t descriptor, cublasLtMatrixLayout_t a,
                         cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                         cublasLtMatmulPreference_t preference, int most,
                         cublasLtMatmulHeuristicResult_t* found, int* count) {
  const std::lock_guard lock(mutex);
  const auto& how = of<Descriptor>(descriptor);
  const auto& prefers = of<Preference>(preference);
  state().questions.push_back(
      {most, how.multiprocessors, prefers.workspace_bytes, prefers.reductions, prefers.alignments});
  if (state().answer != CUBLAS_STATUS_SUCCESS) return state().answer;
  const Shape shape(how, of<Layout>(a), of<Layout>(b), of<Layout>(d));
  if (c != d || !shape.fits()) return CUBLAS_STATUS_INVALID_VALUE;
  if (state().refuses && state().refuses(shape.result.columns, shape.result.rows, shape.inner()))
    return CUBLAS_STATUS_NOT_SUPPORTED;
  *count = 0;
  for (size_t i = 0; i < state().algorithms.size() && *count < most; ++i) {
    const auto& algorithm = state().algorithms[i];
    if (algorithm.workspace_bytes > prefers.workspace_bytes) continue;
    cublasLtMatmulHeuristicResult_t& result = found[(*count)++] = {};
    result.algo.data[0] = i;
    std::copy(prefers.alignments.begin(), prefers.alignments.end(), result.algo.data + 1);
    result.workspaceSize = algorithm.workspace_bytes;
    result.state = algorithm.state;
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t matmul(cublasLtHandle_t, cublasLtMatmulDesc_t descriptor, const void* alpha, const void* left,
                      cublasLtMatrixLayout_t a, const void* right, cublasLtMatrixLayout_t b, const void* beta,
                      const void* add, cublasLtMatrixLayout_t c, void* result, cublasLtMatrixLayout_t d,
                      const cublasLtMatmulAlgo_t* chosen, void* workspace, size_t workspace_bytes,
                      cudaStream_t stream) {
  const std::lock_guard lock(mutex);
  if (state().outcome != CUBLAS_STATUS_SUCCESS) return state().outcome;
  const Shape shape(of<Descriptor>(descriptor), of<Layout>(a), of<Layout>(b), of<Layout>(d));
  const auto& algorithm = state().algorithms.at(chosen->data[0]);
  const uint64_t* const aligned = chosen->data + 1;
  if (!is_aligned(left, aligned[0]) || !is_aligned(right, aligned[1]) || !is_aligned(add, aligned[2]) ||
      !is_aligned(result, aligned[3]))
    return CUBLAS_STATUS_INVALID_VALUE;
  if (c != d || !shape.fits() || algorithm.state != CUBLAS_STATUS_SUCCESS ||
      workspace_bytes < algorithm.workspace_bytes || (workspace == nullptr) != (workspace_bytes == 0))
    return CUBLAS_STATUS_INVALID_VALUE;
  state().gemms.push_back(static_cast<int>(chosen->data[0]));
  state().betas.push_back(*static_cast<const float*>(beta));
  for (int i = 1; i < algorithm.steps; ++i) fake_cuda::launch(stream, [] {});
  fake_cuda::launch(stream, [=, alpha = *static_cast<const float*>(alpha),
                             beta = *static_cast<const float*>(beta), bytes = algorithm.workspace_bytes] {
    if (bytes > 0) std::memset(workspace, kRubbish, bytes);
    multiply(shape, alpha, left, right, beta, add, result);
  });
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace

const CublasLtApi& cublas_lt() {
  static const CublasLtApi api{
      .cublasLtGetStatusName = status_name,
      .cublasLtCreate = create_handle,
      .cublasLtDestroy = destroy_handle,
      .cublasLtMatrixLayoutCreate =
          [](cublasLtMatrixLayout_t* made, cudaDataType type, uint64_t rows, uint64_t columns,
             int64_t leading) {
            return create(made,
                          Layout{type, static_cast<int64_t>(rows), static_cast<int64_t>(columns), leading});
          },
      .cublasLtMatrixLayoutDestroy = [](cublasLtMatrixLayout_t layout) { return destroy<Layout>(layout); },
      .cublasLtMatmulDescCreate =
          [](cublasLtMatmulDesc_t* made, cublasComputeType_t compute, cudaDataType scale) {
            if (compute != CUBLAS_COMPUTE_32F || scale != CUDA_R_32F) return CUBLAS_STATUS_INVALID_VALUE;
            return create<Descriptor>(made);
          },
      .cublasLtMatmulDescDestroy =
          [](cublasLtMatmulDesc_t descriptor) { return destroy<Descriptor>(descriptor); },
      .cublasLtMatmulDescSetAttribute = set_descriptor,
      .cublasLtMatmulPreferenceCreate =
          [](cublasLtMatmulPreference_t* made) { return create<Preference>(made); },
      .cublasLtMatmulPreferenceDestroy =
          [](cublasLtMatmulPreference_t preference) { return destroy<Preference>(preference); },
      .cublasLtMatmulPreferenceSetAttribute = set_preference,
      .cublasLtMatmulAlgoGetHeuristic = heuristic,
      .cublasLtMatmul = matmul};
  return api;
}

}  // namespace cuda
}  // namespace stp
