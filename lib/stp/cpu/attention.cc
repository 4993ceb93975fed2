#include "stp/cpu/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "stp/cpu/blas.h"
#include "stp/cpu/elementwise.h"
#include "stp/cpu/exponential.h"

namespace stp::cpu {
namespace {

// Queries and keys of a block: large enough for BLAS, small enough for a core's own cache.
constexpr int64_t kBlock = 128;

// The position of one head of one sample in the interleaved matrices.
template <typename T>
struct Head {
  Head(const AttentionShape& shape, int sample, int head, const T* qkv_data)
      : first_row(int64_t{sample} * shape.seq),
        q_column(int64_t{head} * shape.head_dim),
        k_column(shape.q_columns() + int64_t{head / (shape.q_heads / shape.kv_heads)} * shape.head_dim),
        v_column(k_column + shape.kv_columns()),
        stride(shape.qkv_columns()),
        qkv(qkv_data) {}

  [[nodiscard]] MatrixView<const T> q(int64_t row) const { return {at(row) + q_column, stride}; }
  [[nodiscard]] MatrixView<const T> k(int64_t row) const { return {at(row) + k_column, stride}; }
  [[nodiscard]] MatrixView<const T> v(int64_t row) const { return {at(row) + v_column, stride}; }
  [[nodiscard]] const T* at(int64_t row) const { return qkv + (first_row + row) * stride; }

  int64_t first_row, q_column, k_column, v_column, stride;
  const T* qkv;
};

template <typename T>
MatrixView<const T> read(MatrixView<T> view) {
  return {view.data, view.stride};
}

// How many of the keys [first_key, first_key + keys) are visible to the query at `row`.
int64_t visible(int64_t row, int64_t first_key, int64_t keys) {
  return std::clamp<int64_t>(row - first_key + 1, 0, keys);
}

}  // namespace

template <typename T>
void attention_forward(BlasCounter& counter, const AttentionShape& shape, const T* qkv, T* out,
                       T* log_sum_exp) {
  const int64_t d = shape.head_dim, seq = shape.seq, out_stride = shape.q_columns();
  const double scale = 1 / std::sqrt(static_cast<double>(d));
  std::vector<T> scores(kBlock * kBlock);
  std::vector<T> maximum(kBlock);
  std::vector<double> sum(kBlock);
  for (int sample = 0; sample < shape.batch; ++sample) {
    for (int head = 0; head < shape.q_heads; ++head) {
      const Head<T> at(shape, sample, head, qkv);
      for (int64_t query = 0; query < seq; query += kBlock) {
        const int64_t queries = std::min(kBlock, seq - query);
        const MatrixView<T> o{out + (at.first_row + query) * out_stride + at.q_column, out_stride};
        for (int64_t i = 0; i < queries; ++i) std::fill_n(o.data + i * o.stride, d, T{0});
        std::fill(maximum.begin(), maximum.end(), -std::numeric_limits<T>::infinity());
        std::fill(sum.begin(), sum.end(), 0.0);
        for (int64_t key = 0; key < query + queries; key += kBlock) {
          const int64_t keys = std::min(kBlock, seq - key);
          const MatrixView<T> s{scores.data(), keys};
          blas_gemm<T>(counter, {false, true, queries, keys, d}, scale, at.q(query), at.k(key), 0, s);
          for (int64_t i = 0; i < queries; ++i) {
            T* row = s.data + i * s.stride;
            const int64_t seen = visible(query + i, key, keys);
            const T largest = std::max(maximum[i], largest_of(seen, row));
            if (largest > maximum[i]) {  // rescale the sums so far
              const T shrink = std::isinf(maximum[i]) ? T{0} : exponential(maximum[i] - largest);
              sum[i] *= static_cast<double>(shrink);
              for (int64_t j = 0; j < d; ++j) o.data[i * o.stride + j] *= shrink;
              maximum[i] = largest;
            }
            for (int64_t j = 0; j < seen; ++j) row[j] = exponential(row[j] - largest);
            std::fill(row + seen, row + keys, T{0});
            sum[i] += sum_of(seen, [&](int64_t j) { return row[j]; });
          }
          blas_gemm<T>(counter, {false, false, queries, d, keys}, 1, read(s), at.v(key), 1, o);
        }
        for (int64_t i = 0; i < queries; ++i) {
          const T inverse = static_cast<T>(1 / sum[i]);
          for (int64_t j = 0; j < d; ++j) o.data[i * o.stride + j] *= inverse;
          log_sum_exp[(at.first_row + query + i) * shape.q_heads + head] =
              static_cast<T>(static_cast<double>(maximum[i]) + std::log(sum[i]));
        }
      }
    }
  }
}

template <typename T>
void attention_backward(BlasCounter& counter, const AttentionShape& shape, const T* qkv, const T* out,
                        const T* log_sum_exp, const T* out_gradient, T* qkv_gradient) {
  const int64_t d = shape.head_dim, seq = shape.seq, out_stride = shape.q_columns();
  const double scale = 1 / std::sqrt(static_cast<double>(d));
  std::vector<T> probabilities(kBlock * kBlock), gradients(kBlock * kBlock);
  std::vector<T> dot(seq);  // of the output and its gradient, per query
  std::fill_n(qkv_gradient, shape.tokens() * shape.qkv_columns(), T{0});
  for (int sample = 0; sample < shape.batch; ++sample) {
    for (int head = 0; head < shape.q_heads; ++head) {
      const Head<T> at(shape, sample, head, qkv);
      const auto gradient_of = [&](int64_t row, int64_t column) {
        return MatrixView<T>{qkv_gradient + (at.first_row + row) * at.stride + column, at.stride};
      };
      const auto out_at = [&](const T* matrix, int64_t row) {
        return MatrixView<const T>{matrix + (at.first_row + row) * out_stride + at.q_column, out_stride};
      };
      for (int64_t i = 0; i < seq; ++i) {
        const T* o = out_at(out, i).data;
        const T* g = out_at(out_gradient, i).data;
        double total = 0;
        for (int64_t j = 0; j < d; ++j) total += static_cast<double>(o[j]) * static_cast<double>(g[j]);
        dot[i] = static_cast<T>(total);
      }
      for (int64_t key = 0; key < seq; key += kBlock) {
        const int64_t keys = std::min(kBlock, seq - key);
        for (int64_t query = key; query < seq;
             query += kBlock) {  // blocks start at the same tokens: none above the diagonal
          const int64_t queries = std::min(kBlock, seq - query);
          const MatrixView<T> p{probabilities.data(), keys}, ds{gradients.data(), keys};
          blas_gemm<T>(counter, {false, true, queries, keys, d}, scale, at.q(query), at.k(key), 0, p);
          blas_gemm<T>(counter, {false, true, queries, keys, d}, 1, out_at(out_gradient, query), at.v(key), 0,
                       ds);
          for (int64_t i = 0; i < queries; ++i) {
            const int64_t seen = visible(query + i, key, keys);
            T* row = p.data + i * keys;
            T* gradient = ds.data + i * keys;
            const T shift = log_sum_exp[(at.first_row + query + i) * shape.q_heads + head];
            const T mean = dot[query + i], factor = static_cast<T>(scale);
            for (int64_t j = 0; j < seen; ++j) row[j] = exponential(row[j] - shift);
            for (int64_t j = 0; j < seen; ++j) gradient[j] = row[j] * (gradient[j] - mean) * factor;
            std::fill(row + seen, row + keys, T{0});
            std::fill(gradient + seen, gradient + keys, T{0});
          }
          blas_gemm<T>(counter, {true, false, keys, d, queries}, 1, read(p), out_at(out_gradient, query), 1,
                       gradient_of(key, at.v_column));
          blas_gemm<T>(counter, {true, false, keys, d, queries}, 1, read(ds), at.q(query), 1,
                       gradient_of(key, at.k_column));
          blas_gemm<T>(counter, {false, false, queries, d, keys}, 1, read(ds), at.k(key), 1,
                       gradient_of(query, at.q_column));
        }
      }
    }
  }
}

template void attention_forward(BlasCounter&, const AttentionShape&, const float*, float*, float*);
template void attention_forward(BlasCounter&, const AttentionShape&, const double*, double*, double*);
template void attention_backward(BlasCounter&, const AttentionShape&, const float*, const float*,
                                 const float*, const float*, float*);
template void attention_backward(BlasCounter&, const AttentionShape&, const double*, const double*,
                                 const double*, const double*, double*);

}  // namespace stp::cpu
