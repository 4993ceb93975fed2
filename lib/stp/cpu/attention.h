// Grouped-query attention in blocks of queries and keys, with a running softmax: causal, without mask, or as
// steps of a ring. T is float or double; bf16 tensors are float here (operand.h).
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "stp/cpu/blas.h"
#include "stp/cpu/exponential.h"
#include "stp/cpu/operand.h"
#include "stp/cpu/sums.h"
#include "stp/device/kernel_arguments.h"

namespace stp::cpu {
namespace attention {

// Queries and keys of a block: large enough for BLAS, small enough for a core's own cache.
inline constexpr int64_t kBlock = 128;

template <typename T>
MatrixView<const T> read(MatrixView<T> view) {
  return {view.data, view.stride};
}
template <typename T>
MatrixView<T> below(MatrixView<T> view, int64_t row) {
  return {view.data + row * view.stride, view.stride};
}

// The rows of one head of one sample in the interleaved matrices.
template <typename T>
struct Head {
  MatrixView<const T> q, k, v;
};

// The place of one head of one sample.
struct Place {
  Place(const AttentionShape& shape, int sample, int head)
      : first_row(int64_t{sample} * shape.seq),
        q_column(int64_t{head} * shape.head_dim),
        kv_column(int64_t{head / (shape.q_heads / shape.kv_heads)} * shape.head_dim) {}

  template <typename T>
  [[nodiscard]] MatrixView<T> in(T* matrix, int64_t column, int64_t stride) const {
    return {matrix + first_row * stride + column, stride};
  }
  int64_t first_row, q_column, kv_column;
};

// A head's queries, and its keys and values from `kv` if given, else from `qkv`.
template <typename T>
Head<T> head_of(const AttentionShape& shape, const Place& place, const T* qkv, const T* kv) {
  const int64_t stride = shape.qkv_columns(), others = 2 * shape.kv_columns();
  const int64_t k = shape.q_columns() + place.kv_column, v = shape.kv_columns();
  const auto q = place.in(qkv, place.q_column, stride);
  if (kv != nullptr)
    return {q, place.in(kv, place.kv_column, others), place.in(kv, v + place.kv_column, others)};
  return {q, place.in(qkv, k, stride), place.in(qkv, k + v, stride)};
}

// The attention of a sample's queries: to all of [0, keys), or, if causal, up to the query's own row.
struct Range {
  int64_t first_query, seq, keys;
  bool causal;

  // The number of keys of [first_key, first_key + count) that the query at `row` sees.
  [[nodiscard]] int64_t visible(int64_t row, int64_t first_key, int64_t count) const {
    return causal ? std::clamp<int64_t>(row - first_key + 1, 0, count) : count;
  }
  // The most rows and elements of a block's scores.
  [[nodiscard]] int64_t rows() const { return std::min(kBlock, seq); }
  [[nodiscard]] int64_t scores() const { return rows() * std::min(kBlock, keys); }
};

// With `kv` the running softmax continues from `out` and `log_sum_exp`, as if they came from one more key.
template <typename T>
void forward(BlasCounter& counter, const AttentionShape& shape, const Range& range, const T* qkv, const T* kv,
             T* out, T* log_sum_exp) {
  const int64_t d = shape.head_dim;
  const double scale = 1 / std::sqrt(static_cast<double>(d));
  std::vector<T> scores(range.scores()), maximum(range.rows());
  std::vector<double> sum(range.rows());
  for (int sample = 0; sample < shape.batch; ++sample) {
    for (int head = 0; head < shape.q_heads; ++head) {
      const Place place(shape, sample, head);
      const Head<T> at = head_of(shape, place, qkv, kv);
      for (int64_t query = range.first_query; query < range.seq; query += kBlock) {
        const int64_t queries = std::min(kBlock, range.seq - query);
        const MatrixView<T> o = below(place.in(out, place.q_column, shape.q_columns()), query);
        T* const log_sums = log_sum_exp + (place.first_row + query) * shape.q_heads + head;
        if (kv != nullptr) {
          for (int64_t i = 0; i < queries; ++i) maximum[i] = log_sums[i * shape.q_heads];
          std::fill(sum.begin(), sum.end(), 1.0);
        } else {
          for (int64_t i = 0; i < queries; ++i) std::fill_n(o.data + i * o.stride, d, T{0});
          std::fill(maximum.begin(), maximum.end(), -std::numeric_limits<T>::infinity());
          std::fill(sum.begin(), sum.end(), 0.0);
        }
        const int64_t end = range.causal ? query + queries : range.keys;
        for (int64_t key = 0; key < end; key += kBlock) {
          const int64_t keys = std::min(kBlock, range.keys - key);
          const MatrixView<T> s{scores.data(), keys};
          blas_gemm<T>(counter, {false, true, queries, keys, d}, scale, below(at.q, query), below(at.k, key),
                       0, s);
          for (int64_t i = 0; i < queries; ++i) {
            T* row = s.data + i * s.stride;
            const int64_t seen = range.visible(query + i, key, keys);
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
          blas_gemm<T>(counter, {false, false, queries, d, keys}, 1, read(s), below(at.v, key), 1, o);
        }
        for (int64_t i = 0; i < queries; ++i) {
          const T inverse = static_cast<T>(1 / sum[i]);
          for (int64_t j = 0; j < d; ++j) o.data[i * o.stride + j] *= inverse;
          log_sums[i * shape.q_heads] = static_cast<T>(static_cast<double>(maximum[i]) + std::log(sum[i]));
        }
      }
    }
  }
}

// Adds to the gradients of q, k and v in `qkv_gradient`; with `kv_gradient`, k and v have theirs there.
template <typename T>
void backward(BlasCounter& counter, const AttentionShape& shape, const Range& range, const T* qkv,
              const T* kv, const T* out, const T* log_sum_exp, const T* out_gradient, T* qkv_gradient,
              T* kv_gradient) {
  const int64_t d = shape.head_dim, out_stride = shape.q_columns(), stride = shape.qkv_columns();
  const int64_t kv_stride = kv_gradient != nullptr ? 2 * shape.kv_columns() : stride;
  T* const k_gradients = kv_gradient != nullptr ? kv_gradient : qkv_gradient + shape.q_columns();
  const double scale = 1 / std::sqrt(static_cast<double>(d));
  std::vector<T> probabilities(range.scores()), gradients(range.scores());
  std::vector<T> dot(range.seq);  // of the output and its gradient, per query
  for (int sample = 0; sample < shape.batch; ++sample) {
    for (int head = 0; head < shape.q_heads; ++head) {
      const Place place(shape, sample, head);
      const Head<T> at = head_of(shape, place, qkv, kv);
      const auto q_gradient = place.in(qkv_gradient, place.q_column, stride);
      const auto k_gradient = place.in(k_gradients, place.kv_column, kv_stride);
      const auto v_gradient = place.in(k_gradients, shape.kv_columns() + place.kv_column, kv_stride);
      const auto o_at = place.in(out, place.q_column, out_stride);
      const auto g_at = place.in(out_gradient, place.q_column, out_stride);
      for (int64_t i = range.first_query; i < range.seq; ++i) {
        const T* o = below(o_at, i).data;
        const T* g = below(g_at, i).data;
        double total = 0;
        for (int64_t j = 0; j < d; ++j) total += static_cast<double>(o[j]) * static_cast<double>(g[j]);
        dot[i] = static_cast<T>(total);
      }
      for (int64_t key = 0; key < range.keys; key += kBlock) {
        const int64_t keys = std::min(kBlock, range.keys - key);
        // If causal, query blocks start at the key block: blocks above the diagonal are skipped.
        for (int64_t query = range.causal ? key : range.first_query; query < range.seq; query += kBlock) {
          const int64_t queries = std::min(kBlock, range.seq - query);
          const MatrixView<T> p{probabilities.data(), keys}, ds{gradients.data(), keys};
          blas_gemm<T>(counter, {false, true, queries, keys, d}, scale, below(at.q, query), below(at.k, key),
                       0, p);
          blas_gemm<T>(counter, {false, true, queries, keys, d}, 1, below(g_at, query), below(at.v, key), 0,
                       ds);
          for (int64_t i = 0; i < queries; ++i) {
            const int64_t seen = range.visible(query + i, key, keys);
            T* row = p.data + i * keys;
            T* gradient = ds.data + i * keys;
            const T shift = log_sum_exp[(place.first_row + query + i) * shape.q_heads + head];
            const T mean = dot[query + i], factor = static_cast<T>(scale);
            for (int64_t j = 0; j < seen; ++j) row[j] = exponential(row[j] - shift);
            for (int64_t j = 0; j < seen; ++j) gradient[j] = row[j] * (gradient[j] - mean) * factor;
            std::fill(row + seen, row + keys, T{0});
            std::fill(gradient + seen, gradient + keys, T{0});
          }
          blas_gemm<T>(counter, {true, false, keys, d, queries}, 1, read(p), below(g_at, query), 1,
                       below(v_gradient, key));
          blas_gemm<T>(counter, {true, false, keys, d, queries}, 1, read(ds), below(at.q, query), 1,
                       below(k_gradient, key));
          blas_gemm<T>(counter, {false, false, queries, d, keys}, 1, read(ds), below(at.k, key), 1,
                       below(q_gradient, query));
        }
      }
    }
  }
}

// Of a forward or backward.
template <typename Kernel>
Range range_of(const Kernel& k) {
  if (k.kv) return {k.block.first_query, k.shape.seq, k.block.keys, false};
  return {0, k.shape.seq, k.shape.seq, k.shape.causal};
}

}  // namespace attention

template <typename T>
void compute(const kernel::AttentionForward& k, BlasCounter& counter) {
  attention::forward<T>(counter, k.shape, attention::range_of(k), In<T>(k.qkv), InIfAny<T>(k.kv),
                        InOut<T>(k.out), data<T>(k.log_sum_exp));
}

template <typename T>
void compute(const kernel::AttentionBackward& k, BlasCounter& counter) {
  const InOut<T> qkv_gradient(k.qkv_gradient);
  const OutIfAny<T> kv_gradient(k.kv_gradient);
  if (k.kv)
    std::fill_n(static_cast<T*>(kv_gradient), k.kv_gradient.elements(), T{0});
  else
    std::fill_n(static_cast<T*>(qkv_gradient), k.qkv_gradient.elements(), T{0});
  attention::backward<T>(counter, k.shape, attention::range_of(k), In<T>(k.qkv), InIfAny<T>(k.kv),
                         In<T>(k.out), data<T>(k.log_sum_exp), In<T>(k.out_gradient), qkv_gradient,
                         kv_gradient);
}

}  // namespace stp::cpu
